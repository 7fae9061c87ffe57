#pragma once
// One cluster's terms, fences and heartbeat LUNs in the tgt array. devices/array/fence_control.h says what
// each call does and how it fails. Thread-safe. It keeps nothing: what lasts is in the parts, which outlive
// it.

#include <string>
#include <utility>
#include <vector>

#include "devices/array/fence_control.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {

class TgtFences final : public FenceControl {
 public:
  TgtFences(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<Term> BeginTerm(const std::string& holder) override;
  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override;
  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override;
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override;
  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest& request) override;
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override;

 private:
  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
