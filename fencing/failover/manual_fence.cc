#include "fencing/failover/manual_fence.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/node_id.h"
#include "fencing/core/assessment.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/kube/list_all.h"

// Runs in the operator's own process, on its main thread, with the rights of its service account. Nothing
// here talks to an array or a node: the NodeFence is the request, and killing this process takes nothing
// back.
//
//   fence:    ResolveNode -> CreateFence -> FollowFence (in force, or unknown node) -> ReportOutcome
//   unfence:  FencesOf -> for each: DeleteFence; then for each: FollowFence (gone)
//
// A NodeFence is polled and not watched: five requests a second for a few seconds, in return for no thread
// and no restart logic.
namespace lunkeeper::fencing {
namespace {

using kube::Json;

constexpr absl::Duration kFollowEvery = absl::Milliseconds(200);

kube::Limits LimitsOf(const ManualFenceIo& io) {
  return {std::min(io.deadline, absl::Now() + absl::Seconds(10))};
}

// Null JSON: there is no object of that name. It lists with a field selector instead of getting by name,
// because a missing object is then no error, and differs from a kind that is not installed.
absl::StatusOr<Json> FindObject(const ManualFenceIo& io, const kube::Resource& kind,
                                const std::string& name) {
  kube::Selection selection{kind};
  selection.fields = "metadata.name=" + name;
  ASSIGN_OR_RETURN(const std::vector<Json> found, kube::ListAll(io.client, selection, LimitsOf(io)));
  for (const Json& object : found)
    if (kube::TextAt(object, {"metadata", "name"}) == name) return object;
  return Json();
}

absl::Status NoSuchNode(const std::string& node, const std::string& why) {
  return absl::NotFoundError(absl::StrCat("there is no node ", node, ": ", why,
                                          "; `lunkeeper status` shows those there are. Nothing was changed"));
}

// The node id for a machine's name, from its CSINode. A whole id is accepted as it is; whether such a node
// exists is for the controllers to say, which also know nodes that Kubernetes has forgotten. A Node that
// names no id, or another machine's, is fenced as a machine: what it says of itself cannot keep it from that.
absl::StatusOr<NodeId> ResolveNode(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const Json csi_node, FindObject(io, kube::kCsiNodes, node));
  if (const auto node_id = ReadNodeId(csi_node)) return *node_id;
  if (IsNodeId(node) || IsMachineId(NodeId(node))) return NodeId(node);
  ASSIGN_OR_RETURN(const Json object, FindObject(io, kube::kNodes, node));
  if (!object.is_null()) return MachineId(node);
  return NoSuchNode(node, csi_node.is_null() ? "no CSINode has that name"
                                             : "its CSINode names no driver of Lunkeeper's; its id would do");
}

// Prints those entries of a NodeFence's timeline that it has not printed yet.
class TimelinePrinter {
 public:
  explicit TimelinePrinter(const ManualFenceIo& io) : io_(io) {}
  void SkipEntries(const RecordFacts& facts) { reported_ = facts.timeline.size(); }
  void PrintNew(const RecordFacts& facts) {
    for (; reported_ < facts.timeline.size(); ++reported_) {
      const TimelineEntry& entry = facts.timeline[reported_];
      io_.print_line(absl::StrCat(absl::FormatTime("%H:%M:%E3S", entry.at, absl::UTCTimeZone()), "  ",
                                  entry.event, ": ", entry.text));
    }
  }

 private:
  const ManualFenceIo& io_;
  size_t reported_ = 0;
};

// Polls the NodeFence until `done` returns true; `done` receives null when the object is gone.
// DEADLINE_EXCEEDED: that did not happen in time. An API server that is unavailable for a while is waited
// for.
absl::Status FollowFence(const ManualFenceIo& io, const NodeId& node, TimelinePrinter& printer,
                         const std::function<bool(const RecordFacts*)>& done) {
  const SteadyDeadline end(io.deadline);
  for (;;) {
    const auto object = FindObject(io, kNodeFences, node.value());
    if (!object.ok() && !absl::IsUnavailable(object.status())) return object.status();
    if (object.ok()) {
      const RecordFacts facts = ReadRecord(*object);
      printer.PrintNew(facts);
      if (done(object->is_null() ? nullptr : &facts)) return absl::OkStatus();
    }
    if (end.left() <= kFollowEvery) return absl::DeadlineExceededError("");
    absl::SleepFor(kFollowEvery);
  }
}

std::vector<std::string> NotFencedYet(const NodeFence& fence) {
  std::vector<std::string> arrays;
  for (const auto& entry : fence.volumes)
    if (!fence.generations.contains(entry.first)) arrays.push_back(entry.first.value());
  return arrays;
}

// Every array that is configured has confirmed its part. The phase says so: the controller knows which arrays
// were taken out of the configuration since. With no generation no array has confirmed, and
// nothing is fenced.
bool IsInForce(const NodeFence& fence) {
  const bool reached = fence.phase == Phase::kEvacuating || fence.phase == Phase::kReplacing ||
                       fence.phase == Phase::kAwaitingNode || fence.phase == Phase::kMoved;
  return reached && !fence.volumes.empty() && !fence.generations.empty() && !fence.deleting;
}

// With what the node had there: the arrays that have confirmed, or the others.
std::string ArraysOf(const NodeFence& fence, bool confirmed) {
  std::vector<std::string> arrays;
  for (const auto& [array, volumes] : fence.volumes)
    if (fence.generations.contains(array) == confirmed)
      arrays.push_back(absl::StrCat(array.value(), " (", volumes.size(), " volumes)"));
  return absl::StrJoin(arrays, ", ");
}

// For an operator who waited in vain: in the first phase no controller has acted, with one an array has not.
std::string WhyNotInForce(const NodeFence& fence) {
  if (fence.phase == Phase::kRequested)
    return "no controller has taken it up; `lunkeeper status` says who leads";
  const auto arrays = NotFencedYet(fence);
  return absl::StrCat(
      "it is at \"", ToSentence(fence.phase), "\"",
      arrays.empty() ? ""
                     : absl::StrCat("; not confirmed yet: ", absl::StrJoin(arrays, ", "),
                                    ". Bring these arrays back, or take one that is gone for good out of "
                                    "the configuration"));
}

// A fence that is there for another reason would end with that reason. From now on it is the person's, who
// wants it now: the orderly move that failover began has a short deadline, and a person's has a long one. Its
// phase is taken back, as it was reached without closing the machine. NOT_FOUND: it is gone meanwhile.
absl::StatusOr<NodeFence> TakeOverFence(const ManualFenceIo& io, const NodeId& node,
                                        const ManualFenceRequest& request) {
  const SteadyDeadline end(io.deadline);
  for (;;) {
    ASSIGN_OR_RETURN(const Json there, FindObject(io, kNodeFences, node.value()));
    if (there.is_null()) return absl::NotFoundError("it is gone");
    const NodeFence fence = ReadRecord(there).fence;
    const bool hurries = fence.graceful && !request.graceful;
    if (fence.deleting || (IsByPerson(fence) && !hurries)) return fence;
    Json change = Json::object();
    if (hurries) change["spec"]["graceful"] = false;
    if (!IsByPerson(fence)) {
      change["spec"]["requestedBy"] = request.requested_by;
      change["status"]["phase"] = ToWord(Phase::kRequested);
    }
    const auto taken = io.client.Patch({kNodeFences, "", node.value()}, change,
                                       {fence.uid.value(), fence.version.value()}, LimitsOf(io));
    if (taken.ok()) return ReadRecord(*taken).fence;
    // The controller writes to it all the time while it works.
    if (!absl::IsAborted(taken.status()) || end.IsOver()) return taken.status();
  }
}

absl::Status RemoveFinalizers(const ManualFenceIo& io, const RecordFacts& old) {
  const auto removed = io.client.Patch({kNodeFences, "", old.fence.node.value()},
                                       {{"metadata", {{"finalizers", Json::array()}}}},
                                       {old.fence.uid.value(), old.fence.version.value()}, LimitsOf(io));
  if (absl::IsAborted(removed.status()) || absl::IsNotFound(removed.status())) return absl::OkStatus();
  RETURN_IF_ERROR(removed.status());
  io.print_line(absl::StrCat("an old NodeFence was in the way: finalizers of others are removed from it: ",
                             absl::StrJoin(old.finalizers, ", ")));
  return absl::OkStatus();
}

// An old NodeFence that only others' finalizers keep is over, and in the way of a new one. They have some
// time to finish with it. A hook that has lost its object is better than a node that may still write. False:
// there is no such NodeFence.
absl::StatusOr<bool> WaitForOthers(const ManualFenceIo& io, const NodeId& node) {
  const SteadyDeadline end(io.deadline), theirs(absl::Now() + io.others_time);
  for (bool waited = false;; waited = true) {
    ASSIGN_OR_RETURN(const Json object, FindObject(io, kNodeFences, node.value()));
    const RecordFacts old = ReadRecord(object);
    if (!old.IsReleased()) return waited;
    if (end.left() <= kFollowEvery)
      return absl::FailedPreconditionError(
          absl::StrCat("node ", node.value(), " is not fenced: finalizers of others keep its old NodeFence: ",
                       absl::StrJoin(old.finalizers, ", "), ". Try again with a longer --timeout"));
    if (theirs.IsOver()) RETURN_IF_ERROR(RemoveFinalizers(io, old));
    absl::SleepFor(kFollowEvery);
  }
}

struct RequestedFence {
  NodeFence fence;
  bool made = false;  // by this call
};

// Creates the NodeFence, or finds the existing one: of two operators, the second follows the first one's
// fence.
absl::StatusOr<RequestedFence> CreateFence(const ManualFenceIo& io, const NodeId& node,
                                           const ManualFenceRequest& request) {
  Json object = {{"apiVersion", kNodeFences.ApiVersion()},
                 {"kind", "NodeFence"},
                 {"metadata", {{"name", node.value()}}},
                 {"spec", {{"requestedBy", request.requested_by}}}};
  if (!request.cause.empty()) object["spec"]["cause"] = request.cause;
  if (request.graceful) object["spec"]["graceful"] = true;
  const SteadyDeadline end(io.deadline);
  for (;;) {
    const auto made = io.client.Create({kNodeFences, "", ""}, object, LimitsOf(io));
    if (made.ok()) return RequestedFence{ReadRecord(*made).fence, true};
    if (absl::IsNotFound(made.status()))
      return absl::FailedPreconditionError(
          "there are no NodeFences in this cluster: failover is not installed (failover.enabled). With "
          "--array a node is fenced at one array");
    if (!absl::IsAlreadyExists(made.status())) return made.status();
    ASSIGN_OR_RETURN(const bool waited, WaitForOthers(io, node));
    if (waited) continue;
    const auto taken = TakeOverFence(io, node, request);
    if (taken.ok()) return RequestedFence{*taken, false};
    if (!absl::IsNotFound(taken.status())) return taken.status();
    // Gone between two calls; or it never was there, and a webhook refuses the new one as if it were.
    if (end.left() <= kFollowEvery) return made.status();
    absl::SleepFor(kFollowEvery);
  }
}

// With the UID, so that a NodeFence that was made anew in the meantime stays.
absl::Status DeleteFence(const ManualFenceIo& io, const NodeFence& fence) {
  const absl::Status deleted = io.client.Delete({kNodeFences, "", fence.node.value()},
                                                {fence.uid.value(), ""}, std::nullopt, LimitsOf(io));
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

void PrintExisting(const ManualFenceIo& io, const NodeFence& fence) {
  io.print_line(absl::StrCat("nodefence ", fence.node.value(), " is there already, asked for by ",
                             fence.requested_by, ": ", fence.cause));
}

absl::Status RejectUnknownNode(const ManualFenceIo& io, const RequestedFence& requested) {
  if (requested.made)
    RETURN_IF_ERROR(
        DeleteFence(io, requested.fence));  // so that no request for a node that does not exist remains
  return NoSuchNode(requested.fence.node.value(), "no controller has heard of it, and no array");
}

// Prints the outcome of a followed NodeFence, or returns why it is not in force; null: it is gone.
absl::Status ReportOutcome(const ManualFenceIo& io, const RequestedFence& requested, const NodeFence* now) {
  const std::string& node = requested.fence.node.value();
  if (now == nullptr)
    return absl::AbortedError(absl::StrCat("somebody has taken the request for ", node, " back"));
  if (now->phase == Phase::kRefused) return RejectUnknownNode(io, requested);
  if (!IsInForce(*now))
    return absl::DeadlineExceededError(
        absl::StrCat("node ", node, " is not fenced yet and may still write: ", WhyNotInForce(*now),
                     ". The request stands: kubectl get nodefence ", node, " -o yaml"));
  io.print_line(absl::StrCat(
      "node ", node, " is fenced, whatever instance it becomes: no write of it reaches what it had on ",
      ArraysOf(*now, true)));
  if (const std::string others = ArraysOf(*now, false); !others.empty())
    io.print_line(absl::StrCat("NOT confirmed by ", others, ", no longer configured: node ", node,
                               " may still write there. Power it off, or configure the array again"));
  io.print_line(absl::StrCat("its pods: ", ToSentence(now->phase), "; to give it back: lunkeeper unfence ",
                             NameOf(now->node).value()));
  return absl::OkStatus();
}

// The NodeFences of a machine, given its name, or of one of its instances, given a node id.
absl::StatusOr<std::vector<RecordFacts>> FencesOf(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const std::vector<Json> objects, kube::ListAll(io.client, {kNodeFences}, LimitsOf(io)));
  std::vector<RecordFacts> fences;
  for (const Json& object : objects) {
    RecordFacts facts = ReadRecord(object);
    if (facts.fence.node.value() == node || NameOf(facts.fence.node).value() == node)
      fences.push_back(std::move(facts));
  }
  return fences;
}

// The newest phase as the timeline has it: with the arrays that it waits for.
std::string ProgressOf(const RecordFacts& facts) {
  for (auto entry = facts.timeline.rbegin(); entry != facts.timeline.rend(); ++entry)
    if (entry->text.starts_with(ToSentence(facts.fence.phase))) return entry->text;
  return ToSentence(facts.fence.phase);
}

// The deletion is only a request: the finalizer keeps the object until the controller has lifted the fence at
// every array. A new NodeFence of the same name has another UID, and so counts as gone.
absl::Status AwaitLifted(const ManualFenceIo& io, const RecordFacts& facts) {
  const NodeFence& fence = facts.fence;
  TimelinePrinter printer(io);
  printer.SkipEntries(facts);
  std::string progress = ToSentence(fence.phase);
  const absl::Status gone = FollowFence(io, fence.node, printer, [&](const RecordFacts* now) {
    if (now != nullptr) progress = ProgressOf(*now);
    return now == nullptr || now->fence.uid != fence.uid || now->IsReleased();
  });
  if (absl::IsDeadlineExceeded(gone))
    return absl::DeadlineExceededError(absl::StrCat(
        "the fence of ", fence.node.value(), " is not lifted yet: it is at \"", progress,
        "\". It is lifted by itself when the node is back, nothing of those volumes is left on it, and every "
        "array that may have a fence of it answers. Where the machine never comes back, delete its Node "
        "object; an array that is gone for good, take out of the configuration"));
  if (gone.ok()) io.print_line(absl::StrCat("node ", fence.node.value(), " may take volumes again"));
  return gone;
}

}  // namespace

absl::Status RequestManualFence(const ManualFenceIo& io, const ManualFenceRequest& request) {
  ASSIGN_OR_RETURN(const NodeId node, ResolveNode(io, request.node));
  ASSIGN_OR_RETURN(const RequestedFence requested, CreateFence(io, node, request));
  if (requested.fence.deleting)
    return absl::FailedPreconditionError(
        absl::StrCat("the fence of ", node.value(), " is being lifted: fence it again when its NodeFence is ",
                     "gone. `kubectl get nodefence ", node.value(), " -o yaml` shows what keeps it"));
  if (!requested.made) PrintExisting(io, requested.fence);
  TimelinePrinter printer(io);
  std::optional<NodeFence> last = requested.fence;
  const absl::Status followed = FollowFence(io, node, printer, [&](const RecordFacts* now) {
    last = now == nullptr ? std::nullopt : std::make_optional(now->fence);
    return !last || IsInForce(*last) || last->phase == Phase::kRefused;
  });
  if (!followed.ok() && !absl::IsDeadlineExceeded(followed)) return followed;
  return ReportOutcome(io, requested, last ? &*last : nullptr);
}

absl::Status RequestManualUnfence(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const auto fences, FencesOf(io, node));
  if (fences.empty()) {
    RETURN_IF_ERROR(ResolveNode(io, node).status());
    io.print_line(absl::StrCat("node ", node, " is not fenced"));
  }
  // All of them are asked for before one is waited for: a name that two of them close is opened only when
  // nobody wants it closed, and one may wait for an array that does not come back.
  for (const RecordFacts& each : fences) RETURN_IF_ERROR(DeleteFence(io, each.fence));
  absl::Status lifted;
  for (const RecordFacts& each : fences) lifted.Update(AwaitLifted(io, each));
  return lifted;
}

}  // namespace lunkeeper::fencing
