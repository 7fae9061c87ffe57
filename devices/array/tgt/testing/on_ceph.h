#pragma once
// An array on a real Ceph (test_ceph.h), with a real tgtd. Needs root. For one test.

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/test_ceph.h"

namespace lunkeeper::testing {

inline const NodeId kA("node-a.1"), kB("node-b.1");

// An array of its own in the pool `lk`.
struct OnCeph : ArrayFixture {
  explicit OnCeph(int tgtds = 1) : ArrayFixture("", tgtds) {
    options.name = "a" + RandomHexDigits().substr(0, 8);
    options.ceph = TestCeph();
    options.ceph.removals_every = absl::Seconds(1);
    REQUIRE(Open() == absl::OkStatus());
    cluster = Cluster();
  }
  ~OnCeph() { cluster.reset(); }

  void Reopen() {
    cluster.reset();
    REQUIRE(Open() == absl::OkStatus());
    cluster = Cluster();
  }
  VolumeId Make(const std::string& name, uint64_t size_mib = 16) {
    const auto made = cluster->volumes().CreateVolume(Spec(name, size_mib));
    REQUIRE(made.status() == absl::OkStatus());
    return made->id;
  }
  VolumeId MakeFrom(const std::string& name, const SnapshotId& snapshot, const VolumeId& volume) {
    VolumeSpec spec = Spec(name, 16);
    spec.source_snapshot = snapshot;
    spec.source_volume = volume;
    const auto made = cluster->volumes().CreateVolume(spec);
    REQUIRE(made.status() == absl::OkStatus());
    return made->id;
  }
  SnapshotId Snap(const std::string& name, const VolumeId& volume) {
    const auto made = cluster->volumes().CreateSnapshot(name, volume);
    REQUIRE(made.status() == absl::OkStatus());
    CHECK(made->ready);
    return made->id;
  }
  std::unique_ptr<PlainInitiator> Login(const VolumeId& volume, const NodeId& node = kA) {
    const auto grant = cluster->grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    return *std::move(initiator);
  }
  void Release(const VolumeId& volume, const NodeId& node = kA) {
    REQUIRE(cluster->grants().ReleaseGrant(volume, node, GrantOwner::kNode, kAnyGeneration) ==
            absl::OkStatus());
  }
  void WriteBlocks(const VolumeId& volume, uint64_t block, uint64_t count, char fill) {
    {
      const auto initiator = Login(volume);
      for (uint64_t i = 0; i < count; ++i) REQUIRE(initiator->Write(block + i, fill));
    }
    Release(volume);
  }
  void Write(const VolumeId& volume, uint64_t block, char fill) { WriteBlocks(volume, block, 1, fill); }
  char Read(const VolumeId& volume, uint64_t block) {
    const std::optional<char> read = Login(volume)->Read(block);
    Release(volume);
    REQUIRE(read.has_value());
    return *read;
  }
  std::string Rbd(const std::string& words) const {
    const std::string out = directory / "rbd.out";
    Run(absl::StrCat("rbd --conf ", Conf(), " ", words, " > ", out));
    std::ifstream file(out);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool HasImages() const { return absl::StrContains(Rbd("ls lk"), options.name); }
  std::string ImageOf(const VolumeId& id) const {
    return absl::StrCat("lk/lunkeeper.", options.name, ".", id.value());
  }

  std::unique_ptr<Array> cluster;
};

}  // namespace lunkeeper::testing
