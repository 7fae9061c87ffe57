#include "fencing/failover/manual_fence.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/node_id.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"

namespace lunkeeper::fencing {
namespace {

using kube::Json;

constexpr absl::Duration kAskEvery = absl::Milliseconds(200);

kube::Limits By(const ManualFenceIo& io) { return {std::min(io.deadline, absl::Now() + absl::Seconds(10))}; }

absl::StatusOr<std::vector<Json>> ListAll(const ManualFenceIo& io, const kube::Selection& selection) {
  std::vector<Json> found;
  kube::PageRequest page;
  do {
    ASSIGN_OR_RETURN(const kube::PageEnd end,
                     io.client.ListPage(
                         selection, page, [&](Json object) { found.push_back(std::move(object)); }, By(io)));
    page.next = end.next;
  } while (!page.next.empty());
  return found;
}

// Null: there is none of that name.
absl::StatusOr<Json> Find(const ManualFenceIo& io, const kube::Resource& kind, const std::string& name) {
  kube::Selection selection{kind};
  selection.fields = "metadata.name=" + name;
  ASSIGN_OR_RETURN(const std::vector<Json> found, ListAll(io, selection));
  for (const Json& object : found)
    if (kube::TextAt(object, {"metadata", "name"}) == name) return object;
  return Json();
}

absl::Status NoSuchNode(const std::string& node, const std::string& why) {
  return absl::NotFoundError(absl::StrCat("there is no node ", node, ": ", why,
                                          "; `lunkeeper status` shows those there are. Nothing was changed"));
}

// Of the driver that runs there. An id is taken as it is: whether anybody knows it is the controllers' to
// say.
absl::StatusOr<NodeId> Resolve(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const Json csi_node, Find(io, kube::kCsiNodes, node));
  if (const auto instance = ReadInstance(csi_node)) return *instance;
  if (IsNodeId(node)) return NodeId(node);
  return NoSuchNode(node, csi_node.is_null() ? "no CSINode has that name"
                                             : "its CSINode names no driver of Lunkeeper's; its id would do");
}

// What is new in a NodeFence's timeline, each time it is shown.
class Teller {
 public:
  explicit Teller(const ManualFenceIo& io) : io_(io) {}
  void Skip(const RecordFacts& facts) { reported_ = facts.timeline.size(); }
  void Tell(const RecordFacts& facts) {
    for (; reported_ < facts.timeline.size(); ++reported_) {
      const TimelineEntry& entry = facts.timeline[reported_];
      io_.tell(absl::StrCat(absl::FormatTime("%H:%M:%E3S", entry.at, absl::UTCTimeZone()), "  ", entry.event,
                            ": ", entry.text));
    }
  }

 private:
  const ManualFenceIo& io_;
  size_t reported_ = 0;
};

// Looks at the NodeFence again and again until `done` says that this was enough. Null: it is gone.
// DEADLINE_EXCEEDED: it was not. An API server that is away for a while is waited for.
absl::Status Follow(const ManualFenceIo& io, const NodeId& node, Teller& teller,
                    const std::function<bool(const RecordFacts*)>& done) {
  for (;;) {
    const auto object = Find(io, kNodeFences, node.value());
    if (!object.ok() && !absl::IsUnavailable(object.status())) return object.status();
    if (object.ok()) {
      const RecordFacts facts = ReadRecord(*object);
      teller.Tell(facts);
      if (done(object->is_null() ? nullptr : &facts)) return absl::OkStatus();
    }
    if (absl::Now() + kAskEvery >= io.deadline) return absl::DeadlineExceededError("");
    absl::SleepFor(kAskEvery);
  }
}

std::vector<std::string> NotFencedYet(const NodeFence& fence) {
  std::vector<std::string> arrays;
  for (const auto& entry : fence.volumes)
    if (!fence.generations.contains(entry.first)) arrays.push_back(entry.first.value());
  return arrays;
}

bool IsInForce(const NodeFence& fence) {
  return !fence.volumes.empty() && NotFencedYet(fence).empty() && fence.phase != Phase::kFencing;
}

std::string WhereItIs(const NodeFence& fence) {
  return absl::StrJoin(fence.volumes, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first.value(), " (", entry.second.size(), " volumes)");
  });
}

std::string WhyNot(const NodeFence& fence) {
  if (fence.phase == Phase::kRequested)
    return "no controller has taken it up; `lunkeeper status` says who leads, and whether this is a dry run";
  const auto arrays = NotFencedYet(fence);
  return absl::StrCat("it is at \"", ToSentence(fence.phase), "\"",
                      arrays.empty() ? "" : "; not confirmed yet: " + absl::StrJoin(arrays, ", "));
}

struct Asked {
  NodeFence fence;
  bool made = false;  // by this call
};

absl::StatusOr<Asked> Ask(const ManualFenceIo& io, const NodeId& node, const ManualFenceRequest& request) {
  Json object = {{"apiVersion", kNodeFences.ApiVersion()},
                 {"kind", "NodeFence"},
                 {"metadata", {{"name", node.value()}}},
                 {"spec", {{"requestedBy", request.requested_by}}}};
  if (!request.cause.empty()) object["spec"]["cause"] = request.cause;
  const auto made = io.client.Create({kNodeFences, "", ""}, object, By(io));
  if (made.ok()) return Asked{ReadRecord(*made).fence, true};
  if (absl::IsNotFound(made.status()))
    return absl::FailedPreconditionError(
        "there are no NodeFences in this cluster: failover is not installed (failover.enabled). With --array "
        "a node is fenced at one array");
  if (!absl::IsAlreadyExists(made.status())) return made.status();
  ASSIGN_OR_RETURN(const Json there, Find(io, kNodeFences, node.value()));
  return Asked{ReadRecord(there).fence, false};
}

absl::Status Delete(const ManualFenceIo& io, const NodeFence& fence) {
  const absl::Status deleted =
      io.client.Delete({kNodeFences, "", fence.node.value()}, {fence.uid.value(), ""}, std::nullopt, By(io));
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

void TellOfFormer(const ManualFenceIo& io, const NodeFence& fence) {
  const bool by_evidence = fence.requested_by.empty();
  io.tell(absl::StrCat("nodefence ", fence.node.value(), " is there already, ",
                       by_evidence ? "by evidence: " : "asked for by " + fence.requested_by + ": ",
                       fence.cause,
                       by_evidence ? "; it goes by itself when the node is back and clean" : ""));
}

absl::Status Refused(const ManualFenceIo& io, const Asked& asked) {
  if (asked.made) RETURN_IF_ERROR(Delete(io, asked.fence));  // it would stand there for nothing
  return NoSuchNode(asked.fence.node.value(), "no controller has heard of it, and no array");
}

// What became of a NodeFence that was followed; null: it is gone.
absl::Status Conclude(const ManualFenceIo& io, const Asked& asked, const NodeFence* now) {
  const std::string& node = asked.fence.node.value();
  if (now == nullptr)
    return absl::AbortedError(absl::StrCat("somebody has taken the request for ", node, " back"));
  if (now->phase == Phase::kRefused) return Refused(io, asked);
  if (!IsInForce(*now))
    return absl::DeadlineExceededError(
        absl::StrCat("node ", node, " is not fenced yet and may still write: ", WhyNot(*now),
                     ". The request stands: kubectl get nodefence ", node, " -o yaml"));
  io.tell(absl::StrCat("node ", node, " is fenced: no write of it reaches what it had on ", WhereItIs(*now)));
  io.tell(absl::StrCat("its pods: ", ToSentence(now->phase), "; to give it back: lunkeeper unfence ",
                       NameOf(now->node).value()));
  return absl::OkStatus();
}

// Those of the machine, or of that one life of it.
absl::StatusOr<std::vector<RecordFacts>> FencesOf(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const std::vector<Json> objects, ListAll(io, {kNodeFences}));
  std::vector<RecordFacts> fences;
  for (const Json& object : objects) {
    RecordFacts facts = ReadRecord(object);
    if (facts.fence.node.value() == node || NameOf(facts.fence.node).value() == node)
      fences.push_back(std::move(facts));
  }
  return fences;
}

absl::Status Lift(const ManualFenceIo& io, const RecordFacts& facts) {
  const NodeFence& fence = facts.fence;
  RETURN_IF_ERROR(Delete(io, fence));
  Teller teller(io);
  teller.Skip(facts);
  Phase phase = fence.phase;
  const absl::Status gone = Follow(io, fence.node, teller, [&](const RecordFacts* now) {
    if (now != nullptr) phase = now->fence.phase;
    return now == nullptr || now->fence.uid != fence.uid;
  });
  if (absl::IsDeadlineExceeded(gone))
    return absl::DeadlineExceededError(absl::StrCat(
        "the fence of ", fence.node.value(), " is not lifted yet: it is at \"", ToSentence(phase),
        "\". It is lifted by itself when the node is back and nothing of those volumes is left on it; where "
        "the machine never comes back, delete its Node object"));
  if (gone.ok()) io.tell(absl::StrCat("node ", fence.node.value(), " may take volumes again"));
  return gone;
}

}  // namespace

absl::Status RequestManualFence(const ManualFenceIo& io, const ManualFenceRequest& request) {
  ASSIGN_OR_RETURN(const NodeId node, Resolve(io, request.node));
  ASSIGN_OR_RETURN(const Asked asked, Ask(io, node, request));
  if (asked.fence.deleting)
    return absl::FailedPreconditionError(
        absl::StrCat("the fence of ", node.value(), " is being lifted: fence it again when that is over"));
  if (!asked.made) TellOfFormer(io, asked.fence);
  Teller teller(io);
  std::optional<NodeFence> last = asked.fence;
  const absl::Status followed = Follow(io, node, teller, [&](const RecordFacts* now) {
    last = now == nullptr ? std::nullopt : std::make_optional(now->fence);
    return !last || IsInForce(*last) || last->phase == Phase::kRefused;
  });
  if (!followed.ok() && !absl::IsDeadlineExceeded(followed)) return followed;
  return Conclude(io, asked, last ? &*last : nullptr);
}

absl::Status RequestManualUnfence(const ManualFenceIo& io, const std::string& node) {
  ASSIGN_OR_RETURN(const auto fences, FencesOf(io, node));
  if (fences.empty()) {
    RETURN_IF_ERROR(Resolve(io, node).status());
    io.tell(absl::StrCat("node ", node, " is not fenced"));
  }
  for (const RecordFacts& each : fences) RETURN_IF_ERROR(Lift(io, each));
  return absl::OkStatus();
}

}  // namespace lunkeeper::fencing
