// What one cluster may be promised of an array, however it asks, and what the others have of that.

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/held_at.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kQuota = 100 * kMiB;

// `c1` has a quota, and all others have none.
struct QuotaFixture {
  QuotaFixture() { Open(kQuota); }
  void Open(uint64_t quota) {
    array.reset();
    fixture.Close();
    fixture.options.limits.quotas.named[ClusterId("c1")] = quota;
    REQUIRE(fixture.Open() == absl::OkStatus());
    array = fixture.Cluster();
  }
  VolumeStore& volumes() const { return array->volumes(); }
  uint64_t Promised() const { return fixture.array->MeasureUse()->promised_bytes.at(ClusterId("c1")); }

  TempDir directory;
  LoopMount mount{directory.path(), "340M"};
  ArrayFixture fixture{mount.path() + "/pool"};
  std::unique_ptr<Array> array;
};

// What nodes write to thin volumes meanwhile.
void WriteAllBut(const LoopMount& pool, uint64_t left) {
  const auto free = std::filesystem::space(pool.path()).available;
  Run(absl::StrCat("fallocate -l ", free - left, " ", pool.path(), "/written"));
}

// With so many MiB of it written.
VolumeId MakeWritten(Array& array, const LoopMount& pool, const VolumeSpec& spec, int written) {
  const auto volume = array.volumes().CreateVolume(spec);
  REQUIRE(volume.ok());
  Run(absl::StrCat("dd if=/dev/urandom conv=notrunc bs=1M count=", written, " 2>/dev/null of=", pool.path(),
                   "/pool/volumes/", volume->id.value()));
  return volume->id;
}

}  // namespace

TEST_CASE_METHOD(QuotaFixture, "a cluster is promised its quota and no more, in whatever way it asks") {
  const auto volume = volumes().CreateVolume(Spec("v", 40));
  REQUIRE(volume.ok());
  const absl::Status refused = volumes().CreateVolume(Spec("w", 61)).status();
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("cluster c1") && Catch::Contains("--quota"));
  CHECK(absl::IsResourceExhausted(volumes().ExpandVolume(volume->id, 101 * kMiB).status()));
  VolumeSpec clone = Spec("clone", 61);
  clone.source_volume = volume->id;
  CHECK(absl::IsResourceExhausted(volumes().CreateVolume(clone).status()));
  REQUIRE(volumes().CreateSnapshot("s", volume->id).ok());  // 80
  CHECK(absl::IsResourceExhausted(volumes().CreateSnapshot("t", volume->id).status()));
  CHECK(absl::IsResourceExhausted(array->groups().CreateGroup("g", {volume->id}).status()));
  CHECK(volumes().GetCapacity()->creatable_bytes == 20 * kMiB);
  CHECK(volumes().CreateVolume(Spec("v", 40))->id == volume->id);  // a call repeated
  CHECK(volumes().CreateVolume(Spec("w", 20)).ok());
  CHECK(Promised() == kQuota);
  CHECK(volumes().GetCapacity()->creatable_bytes == 0);
  CHECK(fixture.Cluster("c2")->volumes().CreateVolume(Spec("v", 1000)).ok());  // thin
  REQUIRE(volumes().DeleteVolume(volume->id).ok());
  CHECK(volumes().CreateVolume(Spec("x", 40)).ok());
}

TEST_CASE_METHOD(QuotaFixture, "calls at the same time do not exceed a quota together") {
  const auto grown = volumes().CreateVolume(Spec("grown", 10));
  REQUIRE(grown.ok());
  std::vector<std::future<bool>> calls;
  for (int i = 0; i < 8; ++i)
    calls.push_back(std::async(std::launch::async, [this, i] {
      return volumes().CreateVolume(Spec(absl::StrCat("v", i), 30)).ok();
    }));
  calls.push_back(
      std::async(std::launch::async, [&] { return volumes().ExpandVolume(grown->id, 70 * kMiB).ok(); }));
  int made = 0;
  for (std::future<bool>& call : calls) made += call.get() ? 1 : 0;
  CHECK(made >= 1);
  CHECK(Promised() <= kQuota);
  // What a refused call had reserved is free again.
  CHECK(volumes().GetCapacity()->creatable_bytes == kQuota - Promised());
}

TEST_CASE("copies that wait for each other have their room, or are refused") {
  const HeldAt held("array.copy.chunk");
  const TempDir directory;
  const LoopMount mount(directory.path(), "340M", "mkfs.xfs -q -m reflink=0");
  ArrayFixture fixture(mount.path() + "/pool");
  fixture.options.copy_wait = absl::ZeroDuration();
  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  const VolumeId volume = MakeWritten(*array, mount, Spec("v", 64), 40);
  const auto room = std::filesystem::space(mount.path()).available;
  Run(absl::StrCat("fallocate -l ", room - 80 * kMiB, " ", mount.path(), "/filler"));
  held.Arm();
  VolumeSpec clone = Spec("a", 64);
  clone.source_volume = volume;
  CHECK(absl::IsAborted(array->volumes().CreateVolume(clone).status()));  // it is being copied
  REQUIRE(Eventually([&] { return held.IsReached(); }));
  clone.name = "b";
  CHECK(absl::IsResourceExhausted(array->volumes().CreateVolume(clone).status()));
  CHECK(array->volumes().CreateVolume(Spec("thin", 64)).ok());
  held.LetGo();
  clone.name = "a";
  CHECK(Eventually([&] { return array->volumes().CreateVolume(clone).ok(); }));
}

TEST_CASE("a copy under way leaves the last room of the pool to nodes") {
  const HeldAt held("array.copy.chunk");
  const TempDir directory;
  const LoopMount mount(directory.path(), "340M", "mkfs.xfs -q -m reflink=0");
  ArrayFixture fixture(mount.path() + "/pool");
  fixture.options.copy_wait = absl::Seconds(60);
  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  const VolumeId volume = MakeWritten(*array, mount, Spec("v", 64), 60);
  VolumeSpec clone = Spec("a", 64);
  clone.source_volume = volume;
  held.Arm();
  auto copied = std::async(std::launch::async, [&] { return array->volumes().CreateVolume(clone).status(); });
  REQUIRE(Eventually([&] { return held.IsReached(); }));  // 4 of 60
  WriteAllBut(mount, 20 * kMiB);
  held.LetGo();
  const absl::Status full = copied.get();
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()), Catch::Contains("kept free"));
}

TEST_CASE("a snapshot of a thick volume is given up while there is room for what it shares still") {
  const HeldAt held("array.unshare.piece");
  const TempDir directory;
  const LoopMount mount(directory.path(), "400M");
  ArrayFixture fixture(mount.path() + "/pool");
  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  VolumeSpec thick = Spec("v", 96);
  thick.provisioning = Provisioning::kThick;
  const VolumeId volume = MakeWritten(*array, mount, thick, 96);
  held.Arm();
  auto taken =
      std::async(std::launch::async, [&] { return array->volumes().CreateSnapshot("s", volume).status(); });
  REQUIRE(Eventually([&] { return held.IsReached(); }));
  WriteAllBut(mount, 60 * kMiB);
  held.LetGo();
  const absl::Status full = taken.get();
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()), Catch::Contains("still to be copied"));
  CHECK(std::filesystem::space(mount.path()).available >= 50 * kMiB);
}

TEST_CASE_METHOD(QuotaFixture, "a quota that was lowered takes nothing away, and forbids more") {
  const auto volume = volumes().CreateVolume(Spec("v", 90));
  REQUIRE(volume.ok());
  Open(50 * kMiB);
  CHECK(volumes().GetVolume(volume->id).ok());
  CHECK(volumes().GetCapacity()->creatable_bytes == 0);
  CHECK(absl::IsResourceExhausted(volumes().CreateVolume(Spec("w", 1)).status()));
  CHECK(volumes().DeleteVolume(volume->id).ok());
  CHECK(volumes().CreateVolume(Spec("w", 50)).ok());
}

}  // namespace lunkeeper::testing
