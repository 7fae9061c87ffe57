#include "node/array_grant_source.h"

#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Grants taken here are owned by the node (GrantOwner::kNode), so an orchestrator's ControllerUnpublishVolume
// leaves them alone, and ReleaseGrant here leaves alone those of the orchestrator.
class ArrayGrantSource final : public GrantSource {
 public:
  ArrayGrantSource(GrantStore& store, const NodeId& node) : store_(store), node_(node) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, const WantedUse& use, absl::Duration wait) override {
    return store_.AcquireGrant({.volume = volume, .node = node_, .access = use.access, .mode = use.mode},
                               wait);
  }

  absl::Status Release(const VolumeId& volume, Generation generation, absl::Time) override {
    const absl::Status status = store_.ReleaseGrant(volume, node_, GrantOwner::kNode, generation);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a volume that is gone has no grants
  }

  absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time) override {
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, store_.ListGrants({volume, node_}));
    std::vector<HeldGrant> held;
    for (const Grant& grant : grants) {
      held.push_back({grant.volume, grant.generation, grant.connection.target, grant.owner});
    }
    return held;
  }

 private:
  GrantStore& store_;
  const NodeId node_;
};

}  // namespace

std::unique_ptr<GrantSource> MakeArrayGrantSource(GrantStore& store, const NodeId& node) {
  return std::make_unique<ArrayGrantSource>(store, node);
}

}  // namespace lunkeeper
