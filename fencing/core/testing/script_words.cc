// The words of a script; the other half of ScriptedWorld.

#include <stdexcept>
#include <utility>

#include "fencing/core/testing/script_settings.h"
#include "fencing/core/testing/script_text.h"
#include "fencing/core/testing/scripted_world.h"

namespace lunkeeper::fencing {
namespace {

ReplicaSight ReadSight(std::istringstream& words) {
  ReplicaSight sight{.replica = "them", .age = 600_s, .arrays = std::stoi(NextWord(words))};
  sight.nodes = std::stoi(NextWord(words));
  if (const auto age = NextWord(words); !age.empty()) sight.age = ReadSpan(age);
  return sight;
}

}  // namespace

void ScriptedWorld::Line(const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  const auto word = NextWord(words);
  if (word.empty()) return;
  if (word == "end") return RunUntil(Instant(ReadSpan(NextWord(words))));
  if (word != "at") return Setup(word, words);
  RunUntil(Instant(ReadSpan(NextWord(words))));
  Happen(NextWord(words), words);
}

void ScriptedWorld::Setup(const std::string& word, std::istringstream& words) {
  if (word == "arrays") {
    for (std::string name; words >> name;) arrays_[ArrayId(name)];
  } else if (word == "nodes") {
    for (std::string name; words >> name;) {
      machines_[NodeName(name)].id = NodeId(name + ".i");
      auto& node = nodes_[NodeName(name)];
      node.name = NodeName(name);
      node.uid = Uid("node-" + name);
      node.node_id = NodeId(name + ".i");
      node.version = NextVersion();
      node.labels = Shared<NodeLabels>(NodeLabels{{{HashLabel(kNameLabel), HashLabel(name)}}, {}});
    }
  } else if (word == "label" || word == "taint" || word == "room") {
    auto& node = nodes_.at(NodeName(NextWord(words)));
    auto labels = *node.labels;
    if (word == "label") labels.labels.push_back(ReadLabel(NextWord(words)));
    if (word == "taint") labels.taints.push_back(ReadTaint(NextWord(words)));
    if (word == "room") labels.allocatable = ReadResources(NextWord(words));
    node.labels = Shared<NodeLabels>(std::move(labels));
  } else if (word == "pod") {
    AddPod(words);
  } else if (word == "no-driver") {
    nodes_.at(NodeName(NextWord(words))).node_id = NodeId();
  } else if (word == "registered-with-taint") {
    nodes_.at(NodeName(NextWord(words))).plugin_taint = PluginTaint::kAtStart;
  } else if (word == "late") {
    late_.insert(nodes_.extract(NodeName(NextWord(words))));
  } else if (word == "unheard") {
    Find(NextWord(words)).heartbeats = false;
  } else if (word == "without-storage") {
    Find(NextWord(words)).storage = false;
  } else if (word == "set") {
    const auto name = NextWord(words);
    SetOption(name, NextWord(words));
  } else if (word == "no-heartbeat-luns") {
    heartbeat_luns_ = false;
  } else if (word == "show") {
    show_all_ = true;
  } else {
    throw std::runtime_error("no such word: " + word);
  }
}

void ScriptedWorld::SetOption(const std::string& name, const std::string& value) {
  if (name.ends_with("_ms")) {
    answers_[name.substr(0, name.size() - 3)] = Span::OfMilliseconds(std::stoi(value));
  } else if (name == "plugin_not_ready") {
    settings_.plugin_not_ready = ReadSpan(value);
  } else {
    SetSetting(name, value, settings_);
  }
}

void ScriptedWorld::AddPod(std::istringstream& words) {
  Pod pod;
  pod.id = PodId(NextWord(words));
  pod.uid = Uid(pod.id.value() + "-1");
  pod.owner_kind = "StatefulSet.apps", pod.owner = Uid("owner-of-" + pod.id.value());
  pod.running = true;
  bool raw = false;
  for (std::string word; words >> word;) {
    if (word == "raw") raw = true;
    if (word == "on") pod.node = NodeName(NextWord(words));
    if (word == "owner") pod.owner_kind = NextWord(words);
    if (word == "of") pod.owner = Uid(NextWord(words));
    if (word == "never") pod.policy = FailoverPolicy::kNever;
    if (word == "always") pod.policy = FailoverPolicy::kAlways;
    if (word == "foreign") pod.foreign_volumes = true;
    if (word == "plugin") pod.plugin = true;
    if (word == "finalizer") finalizers_.insert(pod.id);
    ReadScheduling(word, words, pod);
    if (word != "volumes") continue;
    for (const auto& text : Split(NextWord(words))) {
      const auto [array, volume] = Volume(text);
      pod.volumes[array].insert(volume);
      arrays_.at(array).holders[volume] = Find(pod.node.value()).id;
      Find(pod.node.value()).present.insert(volume);
    }
  }
  if (raw)
    for (const auto& [array, volumes] : pod.volumes) pod.raw.insert(volumes.begin(), volumes.end());
  if (pod.owner_kind == "none") pod.owner_kind = "";
  pods_[pod.id] = pod;
}

void ScriptedWorld::Happen(const std::string& subject, std::istringstream& words) {
  const auto machine = machines_.find(NodeName(subject));
  machine != machines_.end() ? HappenToNode(machine->second, words) : HappenToWorld(subject, words);
}

void ScriptedWorld::HappenToNode(Machine& machine, std::istringstream& words) {
  const auto what = NextWord(words);
  const std::map<std::string, bool*> channels = {{"heartbeats", &machine.heartbeats},
                                                 {"storage", &machine.storage},
                                                 {"probe", &machine.probe},
                                                 {"kubelet", &machine.kubelet},
                                                 {"io", &machine.io}};
  const auto name = NameOf(machine.id);
  if (const auto channel = channels.find(what); channel != channels.end()) {
    *channel->second = NextWord(words) == "start";
  } else if (what == "route") {
    machine.route = NextWord(words) == "start";
  } else if (what == "dies") {
    for (const auto& each : channels) *each.second = false;
  } else if (what == "returns" || what == "reboots") {
    for (const auto& each : channels) *each.second = true;
    if (what == "reboots") Reboot(machine);
    Renew(name);
    After(2500_ms, [this, &machine] { Clean(machine); });
  } else if (what == "closes") {
    Feed(StreamClosed{machine.id});
  } else if (what == "elsewhere") {
    const auto how = NextWord(words);
    heard_by_other_.erase(name), ended_for_other_.erase(name);
    if (how == "heard") heard_by_other_.insert(name);
    if (how == "ended") ended_for_other_.insert(name);
  } else if (what == "late-heartbeat") {
    Feed(Heartbeat{machine.id, NextWord(words), 1, true, {}, {}, {}, {}});
  } else if (what == "hung" || what == "unhung") {
    machine.kubelet_ok = what == "unhung";
  } else if (what == "failing" || what == "failed" || what == "idle" || what == "works" || what == "stages" ||
             what == "unstages") {
    HappenToVolumes(machine, what, words);
  } else if (what == "stuck" || what == "unstuck") {
    machine.cleans = what == "unstuck";
    Clean(machine);
  } else if (what == "rewrites") {
    for (int count = std::stoi(NextWord(words)), at = 1; at <= count; ++at)
      After(at * 1_s, [this, &machine, at] { Rewrite(machine, at); });
  } else if (what == "replaced") {
    machine.id = NodeId(name.value() + ".j"), machine.present.clear();
  } else if (what == "deleted") {
    nodes_.erase(name);
    Feed(NodeGone{name});
  } else {
    HappenToObject(machine, what);
  }
}

void ScriptedWorld::HappenToObject(Machine& machine, const std::string& what) {
  const auto name = NameOf(machine.id);
  if (what == "appears") nodes_.insert(late_.extract(name));
  auto& node = nodes_.at(name);
  if (what == "unregistered") node.node_id = NodeId();
  if (what == "registered") node.node_id = machine.id;
  if (what == "recreated") node.uid = Uid(node.uid.value() + "'"), node.plugin_taint = PluginTaint::kNone;
  if (what == "recreated") machine.id = node.node_id = NodeId(name.value() + ".j"), machine.present.clear();
  if (what == "exempt") node.exempt = true;
  if (what == "ready" || what == "unready") node.ready = what == "ready";
  if (what == "in-service" || what == "out-of-service") node.out_of_service = what == "out-of-service";
  node.version = NextVersion();
  Feed(NodeSeen{node});
}

// It calls itself something else from now on, as a machine that was broken into may. Arrays limit the
// heartbeat LUNs of a machine.
void ScriptedWorld::Rewrite(Machine& machine, int number) {
  auto& node = nodes_.at(NameOf(machine.id));
  machine.storage = false;
  machine.id = node.node_id = NodeId(node.name.value() + ".x" + std::to_string(number));
  node.version = NextVersion();
  Feed(NodeSeen{node});
}

void ScriptedWorld::HappenToVolumes(Machine& machine, const std::string& what, std::istringstream& words) {
  if (what == "works") {
    machine.failing.clear();
    machine.failed.clear();
    machine.idle.clear();
    return;
  }
  if (what == "stages") {
    const auto [array, volume] = Volume(NextWord(words));
    arrays_.at(array).holders[volume] = machine.id;
    machine.present.insert(volume);
    return;
  }
  if (what == "unstages") {
    const auto [array, volume] = Volume(NextWord(words));
    arrays_.at(array).holders.erase(volume);
    machine.present.erase(volume);
    return;
  }
  const VolumeId volume(NextWord(words));
  machine.failing.insert(volume);
  if (what == "failed") machine.failed.insert(volume);
  what == "idle" ? (void)machine.idle.insert(volume) : (void)machine.idle.erase(volume);
}

NodeId ScriptedWorld::FindFenced(const std::string& name) {
  return name.find('.') == std::string::npos ? Find(name).id : NodeId(name);
}

// One by hand is whole: a person's command returned. A node's may be what a leader left half done.
void ScriptedWorld::HaveFence(ArrayModel& array, const std::string& name, std::istringstream& words) {
  const auto id = FindFenced(name);
  VolumeSet volumes;
  bool manual = IsMachineId(id);
  for (std::string word; words >> word;) {
    if (word == "by-hand") manual = true;
    if (word != "by-hand") volumes.insert(VolumeId(word));
  }
  std::erase_if(array.holders, [&](const auto& holder) {
    return manual && IsIdFor(id, holder.second) && volumes.contains(holder.first);
  });
  const auto there = array.fences.find(id);
  const Generation generation = there == array.fences.end() ? ++array.last : there->second.generation;
  array.fences[id] = {.node = id, .generation = generation, .volumes = volumes, .manual = manual};
  After(1_s, [&array] { EndFencedGrants(array); });
}

void ScriptedWorld::MakeFence(const std::string& what, const std::string& how) {
  const NodeId id(machines_.contains(NodeName(what)) ? Find(what).id : NodeId(what));
  auto& fence = fences_[id];
  fence.node = id;
  fence.uid = Uid("fence-" + what);
  fence.version = NextVersion();
  fence.cause = "maintenance";
  if (how != "evidence") fence.requested_by = "an operator";
  fence.graceful = how == "graceful";
  Feed(FenceSeen{fence});
}

void ScriptedWorld::HappenToArray(const ArrayId& id, std::istringstream& words) {
  auto& array = arrays_.at(id);
  const auto what = NextWord(words);
  if (what == "down" || what == "up") array.up = what == "up";
  if (what == "down") array.landed.clear();  // its agent ends
  if (what == "slow" || what == "quick") array.takes.clear();
  for (std::string time; what == "slow" && words >> time;) array.takes.push_back(ReadSpan(time));
  if (what == "shows") array.hidden.clear(), EndFencedGrants(array);
  for (std::string volume; what == "loses" && words >> volume;) array.holders.erase(VolumeId(volume));
  for (std::string volume; what == "hides" && words >> volume;) array.hidden.insert(VolumeId(volume));
  if (what == "portals") array.portals = NextWord(words) == "start";
  if (what == "removed") array.removed = true, Feed(ArrayGone{id});
  if (what == "forgets") array.fences.erase(FindFenced(NextWord(words)));
  if (what == "has-fence") HaveFence(array, NextWord(words), words);
}

void ScriptedWorld::HappenToPod(Pod& pod, const std::string& how) {
  if (how == "finalized") return Finalize(pod.id);
  if (how == "gone") return Feed(PodGone{pods_.extract(pod.id).mapped().id});
  if (how == "crashes" || how == "recovers") pod.crash_looping = how == "crashes";
  if (how == "optout") pod.policy = FailoverPolicy::kNever;
  Feed(PodSeen{pod});
}

void ScriptedWorld::HappenToWorld(const std::string& subject, std::istringstream& words) {
  if (arrays_.contains(ArrayId(subject))) return HappenToArray(ArrayId(subject), words);
  const auto what = NextWord(words);
  if (subject == "set") return SetOption(what, NextWord(words)), core_->ChangeSettings(settings_);
  if (subject == "api" && what == "forgets") {
    fences_.erase(Find(NextWord(words)).id);
  } else if (subject == "api") {
    api_ = what == "up";
    if (!api_) Feed(ApiLost{});
  } else if (subject == "leases") {
    leases_late_ = what == "late";
    if (!leases_late_)
      for (const auto& renewed : std::exchange(late_leases_, {})) Feed(renewed);
  } else if (subject == "observer") {
    stalled_ = true;
    After(ReadSpan(NextWord(words)), [this] { stalled_ = false; });
  } else if (subject == "other") {
    other_sees_ = ReadSight(words);
  } else if (subject == "lease") {
    others_lead_ = what == "taken";
    lease_ = {"them", NextVersion(), {}};
  } else if (subject == "wanted") {
    const auto [where, volume] = Volume(what);
    Feed(VolumeWanted{where, volume, arrays_.at(where).holders.at(volume)});
  } else if (subject == "allow") {
    Feed(VolumeCharged{VolumeId(what), {}});
  } else if (subject == "fence") {
    MakeFence(what, NextWord(words));
  } else if (subject == "lift") {
    auto& fence = fences_.at(FindFenced(what));
    fence.deleting = true;
    fence.version = NextVersion();
    Feed(FenceSeen{fence});
  } else if (subject == "pod") {
    HappenToPod(pods_.at(PodId(what)), NextWord(words));
  } else {
    int times = 1;
    words >> times;
    scripted_[what] = {subject == "fails"     ? Outcome::kFailed
                       : subject == "refused" ? Outcome::kRefused
                       : subject == "gone"    ? Outcome::kGone
                                              : Outcome::kConflict,
                       times == 0 ? 1 : times};
  }
}

}  // namespace lunkeeper::fencing
