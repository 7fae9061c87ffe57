#include "node/array_grant_source.h"

#include "plugin/base/status_macros.h"

namespace lunkeeper {
namespace {

class ArrayGrantSource final : public GrantSource {
 public:
  ArrayGrantSource(AccessControl& array, const NodeId& node) : array_(array), node_(node) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, Access access, absl::Duration wait) override {
    return array_.Acquire({volume, node_, access, GrantOwner::kNode}, wait);
  }

  absl::Status Release(const VolumeId& volume) override {
    const absl::Status status = array_.Release(volume, node_, GrantOwner::kNode, kAnyGeneration);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a volume that is gone has no grants
  }

  absl::StatusOr<bool> Holds(const VolumeId& volume) override {
    ASSIGN_OR_RETURN(const std::vector<Grant> grants, array_.ListGrants({volume, node_}));
    return !grants.empty();
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
