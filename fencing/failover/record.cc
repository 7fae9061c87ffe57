#include "fencing/failover/record.h"

#include <algorithm>
#include <utility>

// ReadRecord and NewRecord are inverses but for the operator's default. A controller that takes over reads
// everything it needs to continue from here, so each field that the core decides by must survive the round
// trip (real_record_test.cc checks it against a real API server and its schema).
namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

// spec.requestedBy of a failover that no person requested. An empty field means a person who gave no name.
constexpr char kByEvidence[] = "evidence";

std::string ExactStamp(absl::Time at) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", at, absl::UTCTimeZone());
}

// A merge patch keeps the keys that it does not name, so an array that was once in the record stays there.
Json StatusOf(const NodeFence& fence, const Timeline& timeline) {
  Json status = {{"phase", std::string(ToWord(fence.phase))}, {"node", NameOf(fence.node).value()}};
  Json& arrays = status["arrays"] = Json::object();
  for (const auto& [array, volumes] : fence.volumes) {
    Json& each = arrays[array.value()];
    each["volumes"] = Json::array();
    for (const VolumeId& volume : volumes) each["volumes"].push_back(volume.value());
  }
  // Said in both cases: a merge patch would leave what it does not name.
  for (const auto& entry : fence.volumes)
    arrays[entry.first.value()]["asked"] = !fence.unasked.contains(entry.first);
  for (const auto& [array, generation] : fence.generations) arrays[array.value()]["generation"] = generation;
  Json& entries = status["timeline"] = Json::array();
  for (const TimelineEntry& entry : timeline)
    entries.push_back({{"at", ExactStamp(entry.at)}, {"event", entry.event}, {"text", entry.text}});
  return status;
}

// Entries of a wrong type are skipped: an operator may have written them. A generation is a positive number,
// so 0 stands for a fence that the array has not confirmed.
void ReadArrays(const Json& arrays, NodeFence& fence) {
  for (const auto& entry : arrays.items()) {
    if (!entry.value().is_object()) continue;
    const ArrayId array(entry.key());
    VolumeSet& volumes = fence.volumes[array];
    for (const Json& volume : FieldAt(entry.value(), {"volumes"}))
      if (volume.is_string()) volumes.insert(VolumeId(volume.get<std::string>()));
    const int64_t generation = kube::NumberAt(entry.value(), {"generation"});
    // A record of an older controller says nothing, and its arrays may have been asked.
    if (kube::FieldAt(entry.value(), {"asked"}) == false) fence.unasked.insert(array);
    if (generation > 0) fence.generations[array] = static_cast<Generation>(generation);
  }
}

// A time that cannot be read becomes 1970: the entry stays visible, and looks as wrong as it is.
Timeline ReadTimeline(const Json& entries) {
  Timeline timeline;
  for (const Json& each : entries) {
    const auto at = kube::ParseMicroTime(TextAt(each, {"at"}));
    timeline.push_back({at.value_or(absl::UnixEpoch()), TextAt(each, {"event"}), TextAt(each, {"text"})});
  }
  return timeline;
}

}  // namespace

bool HasOurs(const Finalizers& all) { return std::find(all.begin(), all.end(), kFinalizer) != all.end(); }

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
  for (const Json& each : FieldAt(object, {"metadata", "finalizers"}))
    if (each.is_string()) facts.finalizers.push_back(each);
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
  return {{"status", StatusOf(fence, timeline)}};
}

Finalizers WithOurs(Finalizers all) {
  if (!HasOurs(all)) all.push_back(kFinalizer);
  return all;
}

Finalizers WithoutOurs(Finalizers all) {
  all.erase(std::remove(all.begin(), all.end(), kFinalizer), all.end());
  return all;
}

}  // namespace lunkeeper::fencing
