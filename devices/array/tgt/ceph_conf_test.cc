// Part of rbd_array_test: needs a Ceph. What a tool does to its conf while the array is served.

#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "devices/array/tgt/testing/on_ceph.h"

namespace lunkeeper::testing {

// As a tool does that owns the file. tgtd reads it for each image.
TEST_CASE_METHOD(OnCeph, "on Ceph: a conf that turns the cache on later has tgtd acknowledge nothing early") {
  std::ifstream file(Conf());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  options.ceph.conf = directory / "ceph.conf";
  std::ofstream(options.ceph.conf) << text;
  Reopen();
  const VolumeId volume = Make("v");
  std::ofstream(options.ceph.conf) << absl::StrReplaceAll(
      text, {{"rbd_cache = false",
              "rbd_cache = true\nrbd_cache_writethrough_until_flush = false\n"
              "rbd_cache_max_dirty_age = 60"}});
  const auto initiator = Login(volume);
  REQUIRE(initiator->Write(0, 'a'));
  const pid_t tgtd = TgtdProcess(options.control_port);
  ::kill(tgtd, SIGKILL);
  REQUIRE(Eventually([&] {
    const pid_t now = TgtdProcess(options.control_port);
    return now != 0 && now != tgtd && array->CheckTgtd().ok();
  }));
  CHECK(Login(volume)->Read(0) == 'a');
}

}  // namespace lunkeeper::testing
