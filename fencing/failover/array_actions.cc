#include "fencing/failover/array_actions.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "fencing/failover/clock.h"

// A poll is five calls, one after the other. They are not one snapshot, so their order is part of the safety
// argument (see PollArray). With 30,000 grants the loops over them are what a poll costs: they use hash maps
// and move strings instead of copying them.
namespace lunkeeper::fencing {
namespace {

// FAILED_PRECONDITION means that the array knows a newer term: another replica leads. The core then stops
// acting, so this outcome must never be confused with a failure that is worth a repetition.
Answer FromArray(absl::Status status) {
  Answer answer;
  if (absl::IsFailedPrecondition(status)) {
    answer.done.outcome = Outcome::kRefused;
  } else if (!status.ok()) {
    answer.done.outcome = Outcome::kFailed;
  }
  answer.status = std::move(status);
  return answer;
}

// An array agent that lacks a call that only adds evidence is no failure: what the call would tell stays
// unknown. Without this, one new call would cost the whole poll of an older agent.
template <class T>
absl::StatusOr<T> IfImplemented(absl::StatusOr<T> answer) {
  if (absl::IsUnimplemented(answer.status())) return T();
  return answer;
}

// Which grants nobody sees now. One that is in here may be used or not.
class UnseenSet {
 public:
  explicit UnseenSet(const std::vector<UnseenGrants>& unseen) {
    for (const UnseenGrants& part : unseen)
      for (const auto& [volume, node] : part.grants) grants_.emplace(volume.value(), &node);
  }
  bool Contains(const Holding& holding) const {
    const auto [begin, end] = grants_.equal_range(holding.volume.value());
    return std::any_of(begin, end, [&](const auto& each) { return *each.second == holding.node; });
  }

 private:
  std::unordered_multimap<std::string_view, const NodeId*> grants_;
};

std::string DescribeUnseen(const std::vector<UnseenGrants>& unseen) {
  std::string text;
  for (const UnseenGrants& part : unseen) absl::StrAppend(&text, text.empty() ? "" : ", ", part.why);
  return text;
}

absl::StatusOr<std::vector<LandedWrite>> PollHeartbeats(FenceControl& array) {
  ASSIGN_OR_RETURN(auto heartbeats, IfImplemented(array.ListHeartbeats()));
  std::vector<LandedWrite> landed;
  landed.reserve(heartbeats.size());
  for (LandedHeartbeat& heartbeat : heartbeats)
    landed.push_back({std::move(heartbeat.node), heartbeat.sequence,
                      Span::OfMilliseconds(absl::ToInt64Milliseconds(heartbeat.age))});
  return landed;
}

// The list is large, and goes before the next call is made: all arrays are polled at once.
absl::Status PollGrants(GrantStore& array, ArrayPoll& poll) {
  ASSIGN_OR_RETURN(auto grants, array.ListGrants({.volume = {}, .node = {}, .holders_only = true}));
  poll.view.holdings.reserve(grants.size());
  poll.kinds.reserve(grants.size());
  poll.limits = LimitsOfGrants(grants);
  for (Grant& grant : grants) {
    poll.view.holdings.push_back({std::move(grant.volume), std::move(grant.node), 0, grant.generation, true});
    poll.kinds.push_back({grant.access, grant.generation});
  }
  return absl::OkStatus();
}

// Completed commands of all sessions of the grant's node. A count that rises between two polls proves that
// the node lives (the evidence channel "storage").
void AddCommands(const SeenSessions& seen, ArrayView& view) {
  std::unordered_multimap<std::string_view, const GrantSession*> of_volume;
  for (const GrantSession& session : seen.sessions) of_volume.emplace(session.volume.value(), &session);
  const UnseenSet unseen(seen.unseen);
  view.unseen = DescribeUnseen(seen.unseen);
  for (Holding& holding : view.holdings) {
    const auto [begin, end] = of_volume.equal_range(holding.volume.value());
    for (auto each = begin; each != end; ++each)
      if (each->second->node == holding.node) holding.commands += each->second->reads + each->second->writes;
    holding.counted = !unseen.Contains(holding);
  }
}

}  // namespace

// Fences are listed before grants. A fenced node gets no new grants, so a grant that is missing from a later
// list has ended for good. In the other order a grant made between the two calls would be overlooked, and its
// volume would count as drained. The signs of life come last, and with a time of their own, so that long
// lists before them take nothing from what they prove.
absl::StatusOr<ArrayPoll> PollArray(const ArrayId& id, Array& array, const Executor& executor) {
  ArrayPoll poll;
  ArrayView& view = poll.view;
  view.array = id;
  view.asked = NowOn(executor);
  ASSIGN_OR_RETURN(const auto fences, array.fences().ListFences());
  RETURN_IF_ERROR(PollGrants(array.grants(), poll));
  ASSIGN_OR_RETURN(const auto wanted, IfImplemented(array.grants().ListWantedVolumes()));
  view.signs_asked = NowOn(executor);
  ASSIGN_OR_RETURN(const SeenSessions seen, IfImplemented(array.grants().ListSeenSessions()));
  ASSIGN_OR_RETURN(view.landed, PollHeartbeats(array.fences()));
  for (const FenceRecord& fence : fences)
    view.fences.push_back({.node = fence.node,
                           .generation = fence.generation,
                           .volumes = {fence.volumes.begin(), fence.volumes.end()},
                           .manual = fence.fenced_by.starts_with(kOperator)});
  AddCommands(seen, view);
  const std::unordered_set<VolumeId> waited_for(wanted.begin(), wanted.end());
  for (const Holding& holding : view.holdings)
    if (waited_for.contains(holding.volume)) poll.wanted.push_back({id, holding.volume, holding.node});
  return poll;
}

Answer BeginTermOn(const BeginTerm&, FenceControl& array, const std::string& self) {
  const auto term = array.BeginTerm(self);
  Answer answer = FromArray(term.status());
  answer.done.term = term.value_or(0);
  return answer;
}

Answer FenceNodeOn(const FenceNode& call, FenceControl& array, const std::string& self) {
  const auto fence = array.FenceNode(call.term, {.node = call.node,
                                                 .volumes = {call.volumes.begin(), call.volumes.end()},
                                                 .fenced_by = self,
                                                 .reason = "failover: see the node's NodeFence",
                                                 .all_volumes = IsMachineId(call.node)});
  Answer answer = FromArray(fence.status());
  if (fence.ok()) answer.done.fence = ArrayFence{call.node, fence->generation, call.volumes};
  return answer;
}

Answer UnfenceNodeOn(const UnfenceNode& call, FenceControl& array) {
  return FromArray(array.UnfenceNode(call.term, call.node, call.generation));
}

}  // namespace lunkeeper::fencing
