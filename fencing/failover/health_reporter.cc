#include "fencing/failover/health_reporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "devices/array/arrays.h"
#include "devices/node_id.h"

// Each look finds the problems of all volumes anew; nothing but what was said is kept:
//
//   well --problem lasts--> said to be ill --none for a while, and in use*--> said to be well
//                                          --none, and used nowhere--> forgotten after ten minutes
//
// A volume that failed on one node and was moved is well when it is used on another one, and not just because
// its device has gone. (*) Of a full pool it is known in any case.
namespace lunkeeper::fencing {
namespace {

constexpr Span kReconnectLasts = 10_s, kAwayLasts = 30_s;
constexpr Span kWellLasts = 10_s;  // before its end is said
constexpr Span kSayAgain = 60_s;   // between two problems of a volume
constexpr Span kForgetAfter = 600_s;
constexpr int kMostEvents = 20;  // volumes in one look
constexpr int kMostOfPools =
    5;  // of these: a pool has thousands, and a device that failed must not wait for them
constexpr char kPoolFull[] = "PoolFull";

}  // namespace

void HealthReporter::StopReporting() {
  volumes_.clear();
  full_pools_->SetWanted(false);
}

void HealthReporter::ReportChanges() {
  full_pools_->SetWanted(true);
  Problems problems = FindProblems();
  for (auto& [id, volume] : volumes_)
    if (volume.problem && !problems.contains(id)) volume.problem = std::nullopt, volume.since = state_.now;
  for (auto& [id, problem] : problems) {
    Volume& volume = volumes_[id];
    if (!volume.problem || volume.problem->reason != problem.reason) volume.since = state_.now;
    volume.problem = std::move(problem);
  }
  int said = 0, of_pools = 0;
  for (auto& [id, volume] : volumes_) {
    if (said == kMostEvents) break;
    if (!IsDue(id, volume)) continue;
    if (IsOfPool(volume) && ++of_pools > kMostOfPools) continue;
    Say(id, volume);
    ++said;
  }
  std::erase_if(volumes_, [this](const auto& entry) {
    const Volume& volume = entry.second;
    const bool recent = volume.said_at && state_.now - *volume.said_at < kSayAgain;
    return !volume.problem && (volume.said.empty() ? !recent : state_.now - volume.since >= kForgetAfter);
  });
}

// Of several problems the one that says most: what a node reports goes before what is known of its array.
HealthReporter::Problems HealthReporter::FindProblems() const {
  Problems problems;
  for (const auto& [id, node] : state_.evidence.nodes())
    if (state_.evidence.Arrives(node, state_.now)) AddFailing(id, node, problems);
  AddArraysAway(problems);
  AddFullPools(problems);
  return problems;
}

void HealthReporter::AddFailing(const NodeId& id, const NodeEvidence& node, Problems& problems) const {
  const std::string where = absl::StrCat("on node ", NameOf(id).value(), ": ");
  for (const VolumeId& volume : node.heartbeat.failing) {
    if (!node.heartbeat.failed.contains(volume)) {
      problems[volume] = {"Reconnecting",
                          where + "I/O waits for the array, and goes on by itself or fails for good", id,
                          kReconnectLasts};
    } else if (IsFenced(id, volume)) {
      problems[volume] = {"Fenced", where + "the node is fenced, and every I/O of the volume fails there", id,
                          Span()};
    } else {
      problems[volume] = {
          "DeviceFailed",
          where +
              "every I/O fails, and for good; delete the pods that use it there: their replacements get "
              "a new device",
          id, Span()};
    }
  }
  for (const VolumeId& volume : node.heartbeat.closed)
    problems.try_emplace(volume,
                         Problem{"FilesystemReadOnly",
                                 where + "the file system met an error and closed itself; delete the pods "
                                         "that use it there: it is checked before it is mounted again",
                                 id, Span()});
}

bool HealthReporter::IsFenced(const NodeId& node, const VolumeId& volume) const {
  const auto covers = [&](const auto& fences) {
    return std::any_of(fences.begin(), fences.end(),
                       [&](const auto& fence) { return fence.second.volumes.contains(volume); });
  };
  return covers(state_.arrays.FencesOf(node)) || covers(state_.FencesOfMachine(node));
}

// Only of volumes that are used, by what nodes say: of the array itself nothing is known.
void HealthReporter::AddArraysAway(Problems& problems) const {
  for (const ArrayId& array : state_.UnseenArrays())
    for (const auto& entry : state_.evidence.nodes())
      for (const VolumeId& volume : entry.second.heartbeat.present)
        if (ArrayNameIn(volume.value()) == array.value())
          problems.try_emplace(
              volume, Problem{"ArrayNotAnswering",
                              absl::StrCat("array ", array.value(),
                                           " does not answer: no mounts, snapshots or growth; I/O may go on"),
                              NodeId(), kAwayLasts});
}

// Also of volumes that nobody uses: their next pod would find out.
void HealthReporter::AddFullPools(Problems& problems) const {
  const std::shared_ptr<const VolumeSet> volumes = full_pools_->ListVolumes();
  for (const VolumeId& volume : *volumes)
    problems.try_emplace(volume, Problem{kPoolFull,
                                         absl::StrCat("the pool of array ", ArrayNameIn(volume.value()),
                                                      " is full, and a write that needs more room fails: "
                                                      "delete volumes or snapshots, or grow the pool"),
                                         NodeId(), Span()});
}

// Something that is said of all volumes of a pool.
bool HealthReporter::IsOfPool(const Volume& volume) {
  return volume.problem ? volume.problem->reason == kPoolFull : volume.said == kPoolFull;
}

bool HealthReporter::IsInUse(const VolumeId& volume) const {
  const auto& nodes = state_.evidence.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& entry) {
    return entry.second.heartbeat.present.contains(volume) &&
           state_.evidence.Arrives(entry.second, state_.now);
  });
}

bool HealthReporter::IsDue(const VolumeId& id, const Volume& volume) const {
  const Span lasted = state_.now - volume.since;
  if (!volume.problem)
    return !volume.said.empty() && lasted >= kWellLasts && (IsOfPool(volume) || IsInUse(id));
  if (volume.problem->reason == volume.said || lasted < volume.problem->lasts) return false;
  return !volume.said.empty() || !volume.said_at || state_.now - *volume.said_at >= kSayAgain;
}

// On the claim, and on the pods that use it where the problem is.
void HealthReporter::Say(const VolumeId& id, Volume& volume) {
  const std::string* name = objects_.FindVolumeOf(id);
  const VolumeFacts* facts = name == nullptr ? nullptr : objects_.FindVolume(*name);
  if (facts != nullptr) AddEvent("PersistentVolumeClaim", facts->claim, facts->claim_uid, volume);
  for (const Pod* pod : state_.cluster.PodsOf(id)) {
    const bool elsewhere =
        volume.problem && !volume.problem->node.empty() && pod->node != NameOf(volume.problem->node);
    if (!elsewhere) AddEvent("Pod", pod->id.value(), pod->uid, volume);
  }
  volume.said = volume.problem ? volume.problem->reason : "";
  volume.said_at = state_.now;
}

// `object`: "namespace/name".
void HealthReporter::AddEvent(const char* kind, const std::string& object, const Uid& uid,
                              const Volume& volume) {
  const size_t slash = object.find('/');
  kube::ObjectEvent event;
  event.api_version = "v1";
  event.kind = kind;
  event.space = object.substr(0, slash);
  event.name = object.substr(slash + 1);
  event.uid = uid.value();
  event.event_kind = volume.problem ? kube::EventKind::kWarning : kube::EventKind::kNormal;
  event.reason = volume.problem ? volume.problem->reason : "VolumeWell";
  event.action = "WatchVolume";
  event.note = volume.problem ? volume.problem->text : "the volume is well again";
  record_(std::move(event));
}

}  // namespace lunkeeper::fencing
