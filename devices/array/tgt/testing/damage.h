#pragma once
// For tests of images that are damaged in a real Ceph.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "devices/array/tgt/testing/on_ceph.h"

namespace lunkeeper::testing {

// An image that cannot be opened, since what its header says of its size is no number. It stays so unless it
// is repaired.
class Damage {
 public:
  Damage(const OnCeph& on, const VolumeId& volume) : kept_(on.directory / "size") {
    const std::string info = on.Rbd("info " + on.ImageOf(volume));
    const size_t begin = info.find("rbd_data.");
    REQUIRE(begin != info.npos);
    const std::string id = info.substr(begin + 9, info.find('\n', begin) - begin - 9);
    rados_ = absl::StrCat("rados --conf ", Conf(), " -p lk ");
    size_ = absl::StrCat("omapval rbd_header.", id, " size ");
    Run(absl::StrCat(rados_, "get", size_, kept_, " > /dev/null"));
    Run(absl::StrCat(rados_, "set", size_, "x"));
  }
  void Repair() const { Run(absl::StrCat(rados_, "set", size_, "--input-file ", kept_)); }

 private:
  const std::string kept_;
  std::string rados_, size_;
};

}  // namespace lunkeeper::testing
