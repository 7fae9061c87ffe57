#include "node/array_grant_source.h"

#include "base/status_macros.h"

namespace lunkeeper {
namespace {

class ArrayGrantSource final : public GrantSource {
 public:
  ArrayGrantSource(AccessControl& array, const NodeId& node) : array_(array), node_(node) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, Access access, absl::Duration wait) override {
    return array_.Acquire({volume, node_, access, GrantOwner::kNode}, wait);
  }

  absl::Status Release(const VolumeId& volume, Generation generation, absl::Time) override {
    const absl::Status status = array_.Release(volume, node_, GrantOwner::kNode, generation);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a volume that is gone has no grants
  }

  absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time) override {
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, array_.ListGrants({volume, node_}));
    std::vector<HeldGrant> held;
    for (const Grant& grant : grants) {
      held.push_back({grant.volume, grant.generation, grant.connection.target, grant.owner});
    }
    return held;
  }

 private:
  AccessControl& array_;
  const NodeId node_;
};

}  // namespace

std::unique_ptr<GrantSource> MakeArrayGrantSource(AccessControl& array, const NodeId& node) {
  return std::make_unique<ArrayGrantSource>(array, node);
}

}  // namespace lunkeeper
