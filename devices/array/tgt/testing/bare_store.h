#pragma once
// A store that can do nothing: a test's own does what the test needs. And what a catalogue has beside it.

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_clones.h"

namespace lunkeeper::testing {

class BareStore : public ImageStore {
 public:
  absl::StatusOr<LunBacking> BackingOf(const std::string&) const override { return kNot; }
  std::string SnapshotPath(const VolumeId&, const SnapshotId&) const override { return ""; }
  absl::Status CheckIsClosed(const std::string&) const override { return kNot; }
  absl::Status CheckHeld() const override { return kNot; }
  absl::Status ConfirmHeld() const override { return kNot; }
  void ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>&) const override {}
  bool can_clone() const override { return false; }
  absl::Status CreateImage(const std::string&, uint64_t, Provisioning) const override { return kNot; }
  absl::Status CloneImage(const std::string&, const std::string&, uint64_t, Provisioning,
                          bool) const override {
    return kNot;
  }
  absl::Status CopyImage(const std::string&, const std::string&, uint64_t, Provisioning,
                         const std::function<bool(uint64_t)>&) const override {
    return kNot;
  }
  absl::StatusOr<std::unique_ptr<PoolClones>> MakeClones(std::vector<PoolClone>) const override {
    return kNot;
  }
  absl::Status GrowImage(const std::string&, uint64_t, Provisioning) const override { return kNot; }
  absl::Status SyncImage(const std::string&) const override { return kNot; }
  absl::Status KeepImage(const std::string&) const override { return kNot; }
  void DropNewImage(const std::string&) const override {}
  absl::Status MarkDeleted(const std::string&) const override { return kNot; }
  absl::Status UnmarkDeleted(const std::string&) const override { return kNot; }
  absl::Status RemoveMarked(const std::string&) const override { return kNot; }
  absl::Status TidyImages(const std::set<std::string>&, const std::string&) const override { return kNot; }
  absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const override { return kNot; }
  absl::Status DeleteOrphan(const std::string&) const override { return kNot; }
  absl::StatusOr<uint64_t> ReadSize(const std::string&) const override { return kNot; }
  absl::StatusOr<uint64_t> MeasureImage(const std::string&) const override { return kNot; }
  absl::StatusOr<PoolCapacity> MeasureCapacity() const override { return kNot; }
  absl::StatusOr<BlockPage> FindData(const PoolImage&, uint64_t, size_t) const override { return kNot; }
  absl::StatusOr<BlockPage> FindChanges(const PoolImage&, const PoolImage&, uint64_t, size_t) const override {
    return kNot;
  }
  void ReserveRoom() const override {}

 protected:
  inline static const absl::Status kNot = absl::UnimplementedError("not of this store");
};

// Of volume a1-v, which these nodes share.
inline std::vector<GrantRow> AddSharedVolume(Catalogue& catalogue, const std::vector<std::string>& nodes) {
  VolumeRow row;
  row.cluster = ClusterId("c1");
  row.volume.id = VolumeId("a1-v");
  row.volume.spec.name = "v";
  REQUIRE(catalogue.volumes().InsertVolume(row) == absl::OkStatus());
  std::vector<GrantRow> grants;
  for (const std::string& node : nodes)
    grants.push_back(
        catalogue.grants()
            .AddGrant(row.cluster, {row.volume.id, NodeId(node), Access::kSharedWrite}, {"secret"})
            .value());
  return grants;
}

}  // namespace lunkeeper::testing
