#include "devices/array/tgt/catalogue.h"

#include <sqlite3.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

const ClusterId kCluster("c1");
const NodeId kA("a.1"), kB("b.1");

struct Fresh {
  Fresh() { Open(); }
  void Open() {
    catalogue.reset();
    auto opened = Catalogue::Open(directory / "catalogue.db", "a1");
    REQUIRE(opened.status() == absl::OkStatus());
    catalogue = *std::move(opened);
  }
  VolumeId Add(const std::string& name) {
    VolumeRow row;
    row.cluster = kCluster;
    row.volume.id = VolumeId("a1-v" + name);
    row.volume.spec.name = name;
    REQUIRE(catalogue->volumes().InsertVolume(row) == absl::OkStatus());
    return row.volume.id;
  }
  absl::StatusOr<GrantRow> Grant(const VolumeId& volume, const NodeId& node) {
    return catalogue->grants().AddGrant(kCluster, {volume, node, Access::kExclusive, GrantOwner::kNode},
                                        {"secret"});
  }
  const testing::TempDir directory;
  std::unique_ptr<Catalogue> catalogue;
};

TEST_CASE_METHOD(Fresh, "what is stored is there after the program has ended") {
  const VolumeId volume = Add("v");
  const auto grant = Grant(volume, kA);
  REQUIRE(grant.ok());
  const uint64_t sequence = catalogue->sequence();
  Open();
  CHECK(catalogue->sequence() == sequence);
  CHECK(catalogue->volumes().FindVolume(kCluster, volume)->volume.spec.name == "v");
  CHECK((*catalogue->grants().FindGrant(volume, kA))->secret == "secret");
  CHECK((*catalogue->grants().FindGrant(volume, kA))->generation == grant->generation);
}

TEST_CASE_METHOD(Fresh, "a grant keeps its tgtd, and new ones go to each in its turn") {
  const auto add = [this](const std::string& name, const std::vector<int>& tgtds) {
    const GrantRequest request{Add(name), kA, Access::kExclusive, GrantOwner::kNode};
    return catalogue->grants().AddGrant(kCluster, request, {"secret"}, tgtds).value();
  };
  CHECK(add("1", {0, 1, 2}).tgtd == 1);
  CHECK(add("2", {0, 1, 2}).tgtd == 2);
  CHECK(add("3", {0, 1, 2}).tgtd == 0);
  const GrantRow fourth = add("4", {0, 1, 2});
  CHECK(fourth.tgtd == 1);
  CHECK(add("5", {0}).tgtd == 0);
  const GrantRequest again{fourth.volume, kA, Access::kExclusive, GrantOwner::kNode};
  CHECK(catalogue->grants().AddGrant(kCluster, again, {"secret"}, {0, 2})->tgtd == 1);
  Open();
  CHECK(*catalogue->grants().HighestTgtd() == 2);
  CHECK(catalogue->grants().ListGrantsOfTgtd(1)->size() == 2);
  CHECK((*catalogue->grants().FindGeneration(fourth.generation))->tgtd == 1);
}

TEST_CASE_METHOD(Fresh, "every change raises the sequence, and a refused one does not") {
  const uint64_t start = catalogue->sequence();
  const VolumeId volume = Add("v");
  REQUIRE(Grant(volume, kA).ok());
  CHECK(catalogue->sequence() == start + 2);
  CHECK(absl::IsAborted(Grant(volume, kB).status()));
  CHECK(absl::IsFailedPrecondition(catalogue->volumes().DeleteVolume(volume)));
  CHECK(catalogue->sequence() == start + 2);
}

TEST_CASE_METHOD(Fresh,
                 "of many who ask for a volume at the same time one gets it, and every change counts") {
  const VolumeId volume = Add("v");
  const uint64_t start = catalogue->sequence();
  std::vector<absl::StatusOr<GrantRow>> answers(16, absl::UnknownError("none"));
  std::vector<std::thread> nodes;
  for (size_t i = 0; i < answers.size(); ++i) {
    nodes.emplace_back([&, i] { answers[i] = Grant(volume, NodeId("n" + std::to_string(i))); });
  }
  for (std::thread& node : nodes) node.join();
  CHECK(std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.ok(); }) == 1);
  CHECK(catalogue->sequence() == start + 1);
}

TEST_CASE_METHOD(Fresh, "a generation is never used again, not after a restart and not after a restore") {
  const VolumeId volume = Add("v");
  const Generation first = Grant(volume, kA)->generation;
  REQUIRE(catalogue->grants().SetReleasing(first).ok());
  REQUIRE(catalogue->grants().DeleteGrants({first}).ok());
  Open();
  const Generation second = Grant(volume, kA)->generation;
  CHECK(second > first);
  REQUIRE(catalogue->grants().SetReleasing(second).ok());
  REQUIRE(catalogue->grants().DeleteGrants({second}).ok());
  const uint64_t lost = 1000000;
  REQUIRE(catalogue->SkipTo(catalogue->sequence() + lost).ok());
  CHECK(Grant(volume, kA)->generation > second + lost);
}

// A node that knows lost limits goes on with those of the copy.
TEST_CASE_METHOD(Fresh, "a version of a volume's limits is never used again after a restore") {
  const VolumeId volume = Add("v"), without = Add("w");
  REQUIRE(catalogue->volumes().ModifyVolume(kCluster, volume, {.max_iops = 200}).ok());
  const uint64_t lost = 1000000;
  REQUIRE(catalogue->SkipTo(catalogue->sequence() + lost).ok());
  for (const VolumeId& each : {volume, without}) {
    const auto row = catalogue->volumes().FindVolume(kCluster, each);
    REQUIRE(row.ok());
    CHECK(row->volume.spec.limits.version > lost);
  }
}

TEST_CASE_METHOD(Fresh, "a snapshot stays while a volume is copied from it") {
  SnapshotRow source;
  source.cluster = kCluster;
  source.snapshot.id = SnapshotId("a1-s1");
  source.snapshot.source = Add("v");
  source.snapshot.ready = true;
  REQUIRE(catalogue->volumes().InsertSnapshot(source).ok());
  VolumeRow copy;
  copy.cluster = kCluster;
  copy.volume.id = VolumeId("a1-vcopy");
  copy.volume.spec.name = "copy";
  copy.volume.spec.source_snapshot = source.snapshot.id;
  copy.copying = true;
  REQUIRE(catalogue->volumes().InsertVolume(copy).ok());
  bool marked = false;
  const auto mark_files = [&marked] {
    marked = true;
    return absl::OkStatus();
  };
  CHECK(absl::IsAborted(catalogue->volumes().DeleteSnapshot(source.snapshot.id, mark_files)));
  CHECK_FALSE(marked);
  REQUIRE(catalogue->volumes().SetVolumeReady(copy.volume.id).ok());
  CHECK(catalogue->volumes().DeleteSnapshot(source.snapshot.id, mark_files).ok());
  CHECK(marked);
}

TEST_CASE_METHOD(Fresh, "a restore ends every grant") {
  const VolumeId volume = Add("v");
  REQUIRE(Grant(volume, kA).ok());
  REQUIRE(catalogue->SkipTo(catalogue->sequence()).ok());
  CHECK((*catalogue->grants().FindGrant(volume, kA))->releasing);
}

TEST_CASE_METHOD(Fresh, "a fence marks the grants of the volumes named, and no grant passes it") {
  const VolumeId named = Add("named"), other = Add("other");
  REQUIRE(Grant(named, kA).ok());
  REQUIRE(Grant(other, kA).ok());
  CHECK(absl::IsFailedPrecondition(catalogue->fences().AddFence(kCluster, 0, {kA, {named}}).status()));
  const auto term = catalogue->fences().BeginTerm(kCluster, "leader");
  CHECK(
      absl::IsFailedPrecondition(catalogue->fences().AddFence(kCluster, *term + 1, {kA, {named}}).status()));
  const auto fence = catalogue->fences().AddFence(kCluster, *term, {kA, {named}});
  REQUIRE(fence.ok());
  CHECK((*catalogue->grants().FindGrant(named, kA))->releasing);
  CHECK_FALSE((*catalogue->grants().FindGrant(other, kA))->releasing);
  CHECK(absl::IsFailedPrecondition(Grant(Add("third"), kA).status()));
  CHECK(absl::IsFailedPrecondition(catalogue->fences().CheckNotFenced(kCluster, kA)));
  REQUIRE(catalogue->fences().RemoveFence(kCluster, *term, kA, fence->generation).ok());
  CHECK((*catalogue->grants().FindGrant(named, kA))->releasing);
  CHECK(absl::IsAborted(Grant(named, kA).status()));
}

TEST_CASE_METHOD(Fresh, "a fence says who asked for it, why and since when, until another gives a reason") {
  const auto term = catalogue->fences().BeginTerm(kCluster, "leader");
  const absl::Time before = absl::Now();
  FenceRequest request{kA, {}, "uid-1", "leader-1", "no heartbeat"};
  const auto fence = catalogue->fences().AddFence(kCluster, *term, request);
  REQUIRE(fence.ok());
  CHECK(fence->node_uid == "uid-1");
  CHECK(fence->fenced_by == "leader-1");
  CHECK(fence->reason == "no heartbeat");
  CHECK((fence->fenced_at >= before && fence->fenced_at <= absl::Now()));
  CHECK(catalogue->fences().AddFence(kCluster, *term, request)->fenced_at == fence->fenced_at);
  CHECK(catalogue->fences().AddFence(kCluster, *term, {kA, {}})->reason == "no heartbeat");
  request.reason = "by hand";
  request.node_uid = "";
  const auto later = catalogue->fences().AddFence(kCluster, *term, request);
  CHECK(later->reason == "by hand");
  CHECK(later->node_uid == "uid-1");
  CHECK(later->fenced_at > fence->fenced_at);
  Open();
  CHECK(catalogue->fences().ListFences(kCluster)->front().reason == "by hand");
}

TEST_CASE_METHOD(Fresh, "a grant keeps the Node's UID that it was asked for with") {
  const VolumeId volume = Add("v");
  REQUIRE(catalogue->grants()
              .AddGrant(kCluster, {.volume = volume, .node = kA, .node_uid = "uid-1"}, {"secret", "other"})
              .ok());
  CHECK((*catalogue->grants().FindGrant(volume, kA))->node_uid == "uid-1");
  CHECK((*catalogue->grants().FindGrant(volume, kA))->target_secret == "other");
}

TEST_CASE_METHOD(Fresh, "a volume that is being copied is not granted, nor a granted one copied") {
  const VolumeId source = Add("source");
  VolumeRow copy;
  copy.cluster = kCluster;
  copy.copying = true;
  copy.volume.id = VolumeId("a1-vcopy");
  copy.volume.spec.name = "copy";
  copy.volume.spec.source_volume = source;
  const auto grant = Grant(source, kA);
  CHECK(absl::IsFailedPrecondition(catalogue->volumes().InsertVolume(copy)));
  REQUIRE(catalogue->grants().SetReleasing(grant->generation).ok());
  REQUIRE(catalogue->grants().DeleteGrants({grant->generation}).ok());
  REQUIRE(catalogue->volumes().InsertVolume(copy).ok());
  CHECK(absl::IsAborted(Grant(source, kA).status()));
  CHECK(absl::IsAborted(catalogue->volumes().DeleteVolume(source)));
  REQUIRE(catalogue->volumes().SetVolumeReady(copy.volume.id).ok());
  CHECK(Grant(source, kA).ok());
}

TEST_CASE_METHOD(Fresh, "a pool of another array is refused") {
  catalogue.reset();
  CHECK(absl::IsFailedPrecondition(Catalogue::Open(directory / "catalogue.db", "a2").status()));
}

// A disk that hangs every write until the test releases it.
class HungDisk {
 public:
  HungDisk() : vfs_(sqlite3_vfs_find("unix-excl")), real_(vfs_->xGetSystemCall(vfs_, "pwrite64")) {
    released_.emplace();
    REQUIRE(vfs_->xSetSystemCall(vfs_, "pwrite64", reinterpret_cast<sqlite3_syscall_ptr>(&Wait)) ==
            SQLITE_OK);
  }
  ~HungDisk() {
    if (!released_->HasBeenNotified()) Release();
    vfs_->xSetSystemCall(vfs_, "pwrite64", real_);
  }
  void Release() { released_->Notify(); }

 private:
  static ssize_t Wait(int fd, const void* data, size_t size, off64_t offset) {
    released_->WaitForNotification();
    return ::pwrite64(fd, data, size, offset);
  }
  static inline std::optional<absl::Notification> released_;
  sqlite3_vfs* const vfs_;
  const sqlite3_syscall_ptr real_;
};

TEST_CASE_METHOD(Fresh, "a catalogue that is copied to a disk that hangs is read all the same") {
  const VolumeId volume = Add("v");
  HungDisk hung;
  absl::Status copied, read = absl::UnknownError("it waits for the copy");
  absl::Notification has_read;
  std::thread copying([&] { copied = catalogue->CopyTo(directory / "copy.db"); });
  REQUIRE(testing::Eventually([&] { return std::filesystem::exists(directory / "copy.db"); }));
  std::thread reading([&] {
    read = catalogue->volumes().FindVolume(kCluster, volume).status();
    has_read.Notify();
  });
  CHECK(has_read.WaitForNotificationWithTimeout(absl::Seconds(20)));
  hung.Release();
  copying.join();
  reading.join();
  CHECK(read == absl::OkStatus());
  CHECK(copied == absl::OkStatus());
}

}  // namespace
}  // namespace lunkeeper
