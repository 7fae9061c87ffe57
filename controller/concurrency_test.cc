// Calls at the same time: for one object, one of them runs; for many, none disturbs another.

#include <future>
#include <thread>

#include "absl/synchronization/notification.h"
#include "controller/testing/controller_fixture.h"

namespace lunkeeper {

using grpc::StatusCode;

namespace {

// An array whose CreateVolume and Acquire stop half-way until told to go on.
class StoppedArray final : public Array, public VolumeStore, public GrantStore {
 public:
  explicit StoppedArray(Array& inner) : inner_(inner) {}
  absl::Notification arrived, go_on;

  VolumeStore& volumes() override { return *this; }
  SnapshotGroups& groups() override { return inner_.groups(); }
  SnapshotBlocks& blocks() override { return inner_.blocks(); }
  NameIndex& names() override { return inner_.names(); }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return inner_.fences(); }

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override {
    arrived.Notify();
    go_on.WaitForNotificationWithTimeout(absl::Seconds(30));
    return inner_.volumes().CreateVolume(spec);
  }
  absl::Status DeleteVolume(const VolumeId& id) override { return inner_.volumes().DeleteVolume(id); }
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override { return inner_.volumes().GetVolume(id); }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override {
    return inner_.volumes().ListVolumes(token, limit);
  }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t bytes) override {
    return inner_.volumes().ExpandVolume(id, bytes);
  }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) override {
    return inner_.volumes().ModifyVolume(id, change);
  }
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override {
    return inner_.volumes().CreateSnapshot(name, source);
  }
  absl::Status DeleteSnapshot(const SnapshotId& id) override { return inner_.volumes().DeleteSnapshot(id); }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override {
    return inner_.volumes().GetSnapshot(id);
  }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override {
    return inner_.volumes().ListSnapshots(source, token, limit);
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override { return inner_.volumes().GetCapacity(); }
  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    arrived.Notify();
    go_on.WaitForNotificationWithTimeout(absl::Seconds(30));
    return inner_.grants().AcquireGrant(request, wait);
  }
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override {
    return inner_.grants().ReleaseGrant(volume, node, owner, generation);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    return inner_.grants().ListGrants(filter);
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override { return inner_.grants().ListSessions(); }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    return inner_.grants().ListWantedVolumes();
  }

 private:
  Array& inner_;
};

}  // namespace

TEST_CASE("a second call for the same name or grant at the same time is aborted") {
  ControllerFixture fixture;
  SECTION("create") {
    StoppedArray slow(fixture.array);
    fixture.arrays = ControllerFixture::Only(&slow);
    fixture.service = MakeControllerService(*fixture.arrays, {});
    const auto request = CreateRequest("v");
    csi::v1::CreateVolumeResponse first;
    auto running = std::async(std::launch::async,
                              [&] { return fixture.service->CreateVolume(nullptr, &request, &first); });
    slow.arrived.WaitForNotification();
    CHECK(fixture.Create(request).error_code() == StatusCode::ABORTED);
    slow.go_on.Notify();
    CHECK(running.get().ok());
  }
  SECTION("publish") {
    const std::string id = fixture.MustCreate(CreateRequest("v"));
    StoppedArray slow(fixture.array);
    fixture.arrays = ControllerFixture::Only(&slow);
    fixture.service = MakeControllerService(*fixture.arrays, {});
    const auto request = PublishRequest(id, kNodeA);
    csi::v1::ControllerPublishVolumeResponse first;
    auto running = std::async(std::launch::async, [&] {
      return fixture.service->ControllerPublishVolume(nullptr, &request, &first);
    });
    slow.arrived.WaitForNotification();
    CHECK(fixture.Publish(request).error_code() == StatusCode::ABORTED);
    CHECK(fixture.Unpublish(id, kNodeA).error_code() == StatusCode::ABORTED);
    slow.go_on.Notify();
    CHECK(running.get().ok());
  }
}

TEST_CASE("many callers at once make one volume for each name") {
  ControllerFixture fixture;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const auto request = CreateRequest(std::to_string((i + round) % 10));
        csi::v1::CreateVolumeResponse response;
        fixture.service->CreateVolume(nullptr, &request, &response);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(fixture.array.ListVolumes("", 0)->items.size() == 10);
}

// external-snapshotter keeps the first id that it gets for a name, and a copy that failed has no id any more.
TEST_CASE("a snapshot that is still being copied has no id yet, so one that takes its place is found") {
  ControllerFixture fixture;
  const std::string volume = fixture.MustCreate(CreateRequest("v"));
  fixture.array.HoldCopies(true);
  csi::v1::Snapshot taken;
  CHECK(fixture.Snapshot("s", volume, &taken).error_code() == StatusCode::ABORTED);
  CHECK(taken.snapshot_id().empty());
  // The copy fails, and is begun anew by the repeated call.
  const auto failed = fixture.array.ListSnapshots({}, "", 0);
  REQUIRE(failed->items.size() == 1);
  REQUIRE(fixture.array.DeleteSnapshot(failed->items[0].id).ok());
  fixture.array.HoldCopies(false);
  REQUIRE(fixture.Snapshot("s", volume, &taken).ok());
  CHECK(fixture.array.GetSnapshot(SnapshotId(taken.snapshot_id()))->ready);
}

}  // namespace lunkeeper
