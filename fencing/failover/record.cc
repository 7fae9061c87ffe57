#include "fencing/failover/record.h"

#include <utility>

namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

// What spec.requestedBy says of a failover that nobody asked for.
constexpr char kByEvidence[] = "evidence";

std::string ExactStamp(absl::Time at) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", at, absl::UTCTimeZone());
}

Json StatusOf(const NodeFence& fence, const Timeline& timeline) {
  Json status = {{"phase", std::string(ToWord(fence.phase))}, {"node", NameOf(fence.node).value()}};
  Json& arrays = status["arrays"] = Json::object();
  for (const auto& [array, volumes] : fence.volumes) {
    Json& each = arrays[array.value()];
    each["volumes"] = Json::array();
    for (const VolumeId& volume : volumes) each["volumes"].push_back(volume.value());
  }
  for (const auto& [array, generation] : fence.generations) arrays[array.value()]["generation"] = generation;
  Json& entries = status["timeline"] = Json::array();
  for (const TimelineEntry& entry : timeline)
    entries.push_back({{"at", ExactStamp(entry.at)}, {"event", entry.event}, {"text", entry.text}});
  return status;
}

void ReadArrays(const Json& arrays, NodeFence& fence) {
  for (const auto& entry : arrays.items()) {
    if (!entry.value().is_object()) continue;
    const ArrayId array(entry.key());
    VolumeSet& volumes = fence.volumes[array];
    for (const Json& volume : FieldAt(entry.value(), {"volumes"}))
      if (volume.is_string()) volumes.insert(VolumeId(volume.get<std::string>()));
    const int64_t generation = kube::NumberAt(entry.value(), {"generation"});
    if (generation > 0) fence.generations[array] = static_cast<Generation>(generation);
  }
}

Timeline ReadTimeline(const Json& entries) {
  Timeline timeline;
  for (const Json& each : entries) {
    const auto at = kube::ParseMicroTime(TextAt(each, {"at"}));
    timeline.push_back({at.value_or(absl::UnixEpoch()), TextAt(each, {"event"}), TextAt(each, {"text"})});
  }
  return timeline;
}

}  // namespace

RecordFacts ReadRecord(const Json& object) {
  RecordFacts facts;
  NodeFence& fence = facts.fence;
  fence.node = NodeId(TextAt(object, {"metadata", "name"}));
  fence.uid = Uid(TextAt(object, {"metadata", "uid"}));
  fence.version = Version(TextAt(object, {"metadata", "resourceVersion"}));
  fence.cause = TextAt(object, {"spec", "cause"});
  fence.requested_by = TextAt(object, {"spec", "requestedBy"});
  if (fence.requested_by.empty()) fence.requested_by = "an operator";
  if (fence.requested_by == kByEvidence) fence.requested_by = "";
  fence.graceful = kube::FlagAt(object, {"spec", "graceful"});
  fence.deleting = !FieldAt(object, {"metadata", "deletionTimestamp"}).is_null();
  fence.phase = ParsePhase(TextAt(object, {"status", "phase"}));
  const Json& arrays = FieldAt(object, {"status", "arrays"});
  if (arrays.is_object()) ReadArrays(arrays, fence);
  const Json& entries = FieldAt(object, {"status", "timeline"});
  if (entries.is_array()) facts.timeline = ReadTimeline(entries);
  return facts;
}

Json NewRecord(const NodeFence& fence, const Timeline& timeline) {
  return {{"apiVersion", kNodeFences.ApiVersion()},
          {"kind", "NodeFence"},
          {"metadata", {{"name", fence.node.value()}, {"finalizers", {kFinalizer}}}},
          {"spec",
           {{"cause", fence.cause},
            {"requestedBy", fence.requested_by.empty() ? kByEvidence : fence.requested_by},
            {"graceful", fence.graceful}}},
          {"status", StatusOf(fence, timeline)}};
}

Json RecordPatch(const NodeFence& fence, const Timeline& timeline) {
  Json patch = {{"status", StatusOf(fence, timeline)}};
  // Nothing to undo, nothing to wait for; and a finalizer cannot be added to what is being deleted.
  if (!fence.deleting && !fence.volumes.empty()) patch["metadata"]["finalizers"] = Json::array({kFinalizer});
  return patch;
}

}  // namespace lunkeeper::fencing
