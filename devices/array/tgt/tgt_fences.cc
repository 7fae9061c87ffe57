// A fence in four steps, in this order: (1) one change closes the node to new grants and marks its grants of
// the volumes as releasing; (2) their targets are closed to logins and their connections cut; (3) each is
// drained, deleted, and its row removed; (4) the call returns. From (1) on the fence ends by itself even if
// this process dies: the next start, or the tick, releases the marked grants. An error after (1) means "not
// yet", never "not": the caller repeats the call.
#include "devices/array/tgt/tgt_fences.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/executor.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/node_id.h"

namespace lunkeeper {

absl::StatusOr<Term> TgtFences::BeginTerm(const std::string& holder) {
  RETURN_IF_ERROR(parts_.check_serving());
  absl::StatusOr<Term> term = parts_.catalogue.fences().BeginTerm(cluster_, holder);
  parts_.RememberSequence();
  return term;
}

absl::StatusOr<FenceRecord> TgtFences::FenceNode(Term term, const FenceRequest& request) {
  const NodeId& node = request.node;
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckNodeId(IsMachineId(node) ? NodeId(MachineOf(node)) : node));
  ASSIGN_OR_RETURN(FenceRecord record, parts_.catalogue.fences().AddFence(cluster_, term, request));
  parts_.RememberSequence();
  LogInfo("array", "fenced", {{"node", node.value()}, {"generation", absl::StrCat(record.generation)}});
  // AddFence has marked the grants of all fenced volumes; the node keeps its others.
  ASSIGN_OR_RETURN(std::vector<GrantRow> grants, parts_.catalogue.grants().ListReleasingGrants());
  std::erase_if(
      grants, [&](const GrantRow& grant) { return grant.cluster != cluster_ || !IsIdFor(node, grant.node); });
  std::vector<Generation> marked;
  for (const GrantRow& grant : grants) marked.push_back(grant.generation);
  const absl::Duration began = RealExecutor().SteadyNow();
  RETURN_IF_ERROR(parts_.servers.FinishReleasing(grants, absl::Now() + parts_.options.drain_timeout));
  parts_.RememberSequence();
  LogInfo("array", "the fenced node's volumes are free",
          {{"node", node.value()}, {"after", absl::FormatDuration(RealExecutor().SteadyNow() - began)}});
  // Generations are never used again, so that this holds even if the node was unfenced meanwhile.
  for (const Generation generation : marked) {
    ASSIGN_OR_RETURN(const auto left, parts_.catalogue.grants().FindGeneration(generation));
    LK_CHECK(!left.has_value(), "a fence is reported only when every grant it ended is drained and gone");
  }
  return record;
}

absl::Status TgtFences::UnfenceNode(Term term, const NodeId& node, Generation generation) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(parts_.catalogue.fences().RemoveFence(cluster_, term, node, generation));
  FAIL_POINT("array.unfence.stored");
  parts_.RememberSequence();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FenceRecord>> TgtFences::ListFences() {
  RETURN_IF_ERROR(parts_.check_serving());
  return parts_.catalogue.fences().ListFences(cluster_);
}

absl::StatusOr<Connection> TgtFences::OpenHeartbeatLun(const HeartbeatLunRequest& request) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckNodeId(request.node));
  RETURN_IF_ERROR(parts_.servers.first().WaitReady(absl::Now() + kReadyTimeout));
  absl::StatusOr<Connection> access =
      parts_.heartbeat_luns.OpenLun(cluster_, request, parts_.MakeSecrets(cluster_, request.node));
  parts_.RememberSequence();
  return access;
}

absl::StatusOr<std::vector<LandedHeartbeat>> TgtFences::ListHeartbeats() {
  RETURN_IF_ERROR(parts_.check_serving());
  return parts_.heartbeat_luns.ListHeartbeats(cluster_);
}

}  // namespace lunkeeper
