#pragma once
// What the tests of backups share: an array whose pool is copied while it serves, and the copy, which is
// served in its place. Needs root.

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "devices/array/tgt/backup_verify.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {

inline const NodeId kA("node-a.1"), kB("node-b.1");

inline bool Watch(const BackupProgress&) { return true; }

// An array on an XFS that can reflink, and a place for a backup elsewhere.
struct PoolOnXfs {
  PoolOnXfs() {
    REQUIRE(fixture.Open() == absl::OkStatus());
    cluster = fixture.Cluster();
  }

  Volume Make(const std::string& name, Provisioning provisioning = Provisioning::kThin) {
    VolumeSpec spec = Spec(name, 16);
    spec.provisioning = provisioning;
    const auto made = cluster->volumes().CreateVolume(spec);
    REQUIRE(made.status() == absl::OkStatus());
    return *made;
  }
  // A volume with this at its begin.
  Volume MakeWritten(const std::string& name, char fill) {
    Volume made = Make(name);
    REQUIRE(Use(*cluster, made.id, kA)->Write(0, fill));
    REQUIRE(cluster->grants().ReleaseGrant(made.id, kA, GrantOwner::kNode, kAnyGeneration).ok());
    return made;
  }
  static std::unique_ptr<PlainInitiator> Use(Array& array, const VolumeId& volume, const NodeId& node) {
    const auto grant = array.grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    return *std::move(initiator);
  }
  size_t CountFiles() const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::recursive_directory_iterator(pool)) ++files;
    return files;
  }
  std::string BackedUp(const VolumeId& volume) const { return backup + "/volumes/" + volume.value(); }

  TempDir directory;
  LoopMount mount{directory.path(), "512M"};
  const std::string pool = mount.path() + "/pool", backup = directory.path() + "/backup";
  ArrayFixture fixture{pool};
  std::unique_ptr<Array> cluster;
};

// The backup as another host serves it, which remembers nothing of the array.
struct Restored : ArrayFixture {
  explicit Restored(const std::string& backup) : ArrayFixture(backup) {}
  // Served, and accepted.
  std::unique_ptr<Array> Accept() {
    REQUIRE(Open() == absl::OkStatus());
    auto cluster = Cluster();
    const absl::Status refused = cluster->volumes().ListVolumes("", 0).status();
    CHECK(absl::IsUnavailable(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("accept-restore"));
    REQUIRE(array->AcceptRestore() == absl::OkStatus());
    return cluster;
  }
};

}  // namespace lunkeeper::testing
