#include "fencing/core/testing/scripted_world.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fencing/core/trace.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kAnswers = 10_ms;  // after the call

std::string Kind(const WriteLease& call) { return call.release ? "yield" : "lease"; }
std::string Kind(const BeginTerm&) { return "term"; }
std::string Kind(const PutNodeFence&) { return "record"; }
std::string Kind(const RemoveNodeFence&) { return "remove"; }
std::string Kind(const FenceNode&) { return "fence"; }
std::string Kind(const UnfenceNode&) { return "unfence"; }
std::string Kind(const SetTaint&) { return "taint"; }
std::string Kind(const DeletePod&) { return "delete"; }
std::string Kind(const ChargeVolume&) { return "charge"; }
std::string Kind(const Probe&) { return "probe"; }
std::string Kind(const ProbePortals&) { return "portals"; }
std::string Kind(const ReadKubelet&) { return "read"; }
std::string Kind(const AskReplicas& call) { return call.node.empty() ? "sights" : "ask"; }
std::string Kind(const Notify&) { return "notify"; }
std::string Kind(const Report&) { return "say"; }

}  // namespace

std::string ScriptedWorld::Run(const std::string& script) {
  ScriptedWorld world;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) world.Line(line);
  return world.trace_;
}

void ScriptedWorld::Start() {
  if (core_) return;
  core_ = std::make_unique<Core>(settings_, "us");
  for (const auto& entry : arrays_) Feed(ArrayConfigured{entry.first});
  for (const auto& [name, node] : nodes_) Feed(NodeSeen{node});
  for (const auto& [id, pod] : pods_) Feed(PodSeen{pod});
  Feed(ApiSynced{});
  After(0_ms, [this] { EverySoOften(); });
  After(100_ms, [this] { Poll(); });
}

void ScriptedWorld::RunUntil(Instant end) {
  Start();
  while (!agenda_.empty() && agenda_.begin()->first <= end) {
    now_ = agenda_.begin()->first;
    const auto what = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    what();
  }
  now_ = end;
}

// A tick each 250 ms, and what machines do at each second one.
void ScriptedWorld::EverySoOften() {
  Feed(Tick{});
  After(250_ms, [this] { EverySoOften(); });
  const auto is_each = [this](Span period) { return now_.since_start() % period == 0_ms; };
  if (!is_each(500_ms)) return;
  for (auto& [name, machine] : machines_) {
    ++machine.sequence;
    if (machine.io) ++machine.commands;
    if (machine.heartbeats)
      Feed(Heartbeat{machine.id,
                     machine.boot,
                     machine.sequence,
                     machine.kubelet_ok,
                     machine.failing,
                     machine.failed,
                     machine.present,
                     machine.known,
                     {},
                     machine.idle});
    for (auto& [id, array] : arrays_)
      if (machine.storage && array.up && heartbeat_luns_) array.landed[machine.id] = {machine.sequence, now_};
    if (machine.kubelet && api_ && is_each(10_s) && nodes_.contains(name)) Renew(name);
  }
}

void ScriptedWorld::Renew(const NodeName& name) {
  renewals_[name] = {name, NextVersion(), KubeletTime(now_.since_start())};
  leases_late_ ? late_leases_.push_back(renewals_[name]) : Feed(renewals_[name]);
}

ArrayView ScriptedWorld::ViewOf(const ArrayId& id, Instant asked) const {
  const auto& array = arrays_.at(id);
  ArrayView view{id, asked, {}, {}};
  for (const auto& [volume, node] : array.holders) {
    const auto& machine = machines_.at(NameOf(node));
    view.holdings.push_back({volume, node, machine.id == node ? machine.commands : 1});
    if (array.hidden.contains(volume))
      view.holdings.back().commands = 0, view.holdings.back().counted = false;
  }
  if (!array.hidden.empty()) view.unseen = "its tgtd 1 does not answer";
  for (const auto& [node, fence] : array.fences) view.fences.push_back(fence);
  for (const auto& [node, write] : array.landed)
    view.landed.push_back({node, write.first, now_ - write.second});
  return view;
}

// One at a time, and the next one follows half a second later. Of slow ones the first shows how it was when
// it was asked for, and the next how it was when it was answered.
void ScriptedWorld::Look(const ArrayId& id) {
  auto& array = arrays_.at(id);
  if (array.looking) return;
  if (!array.up) return Feed(ArrayLost{id});
  if (array.takes.empty()) return Feed(ViewOf(id, now_));
  array.looking = true;
  const bool early = array.looks % 2 == 0;
  After(array.takes[array.looks++ % array.takes.size()],
        [this, id, asked = now_, early, then = ViewOf(id, now_)] {
          arrays_.at(id).looking = false;
          arrays_.at(id).up ? Feed(early ? then : ViewOf(id, asked)) : Feed(ArrayLost{id});
        });
}

// What the runner reads: the arrays, and the API server.
void ScriptedWorld::Poll() {
  for (const auto& [id, array] : arrays_)
    if (!array.removed) Look(id);
  if (api_) {
    Feed(ApiAlive{});
    Feed(LeaseSeen{lease_.holder, lease_.version, now_});
  }
  if (others_lead_) lease_.version = NextVersion();
  After(500_ms, [this] { Poll(); });
}

void ScriptedWorld::After(Span delay, std::function<void()> what) {
  agenda_.emplace(now_ + delay, std::move(what));
}

void ScriptedWorld::Feed(decltype(Event::what) what) {
  if (stalled_) return;
  for (const auto& action : core_->Step({now_, std::move(what)})) Do(action);
}

void ScriptedWorld::Do(const Action& action) {
  const auto kind = std::visit([](const auto& what) { return Kind(what); }, action.what);
  const bool routine = kind == "lease" || kind == "term" || kind == "probe" || kind == "portals" ||
                       kind == "notify" || kind == "read" || kind == "ask" || kind == "sights";
  if (!routine || show_all_)
    trace_ += FormatSeconds(now_.since_start()) + "  " + DescribeAction(action) + "\n";
  if (const auto* probe = std::get_if<Probe>(&action.what)) {
    const auto node = probe->node;
    if (late_.contains(NameOf(node))) return;  // nobody knows its address yet
    After(200_ms, [this, node] {
      const auto& machine = Find(NameOf(node).value());
      Feed(ProbeAnswer{node, machine.probe && machine.route, !machine.route});
    });
  } else if (const auto* portals = std::get_if<ProbePortals>(&action.what)) {
    if (arrays_.at(portals->array).portals)
      After(200_ms, [this, id = portals->array] { Feed(PortalAnswered{id}); });
  } else if (const auto* notify = std::get_if<Notify>(&action.what)) {
    auto& machine = Find(NameOf(notify->node).value());
    if (machine.id != notify->node || (!machine.heartbeats && !machine.storage)) return;
    machine.known[notify->array] = notify->fence.generation;
    After(1_s, [this, &machine] { Clean(machine); });
  } else if (kind != "say") {
    After(answers_.try_emplace(kind, kAnswers).first->second, [this, action, kind] {
      auto outcome = NextOutcome(kind);
      Done done;
      if (outcome == Outcome::kOk)
        std::visit(
            [&](const auto& call) {
              using Call = std::decay_t<decltype(call)>;
              if constexpr (std::is_same_v<Call, PutNodeFence> || std::is_same_v<Call, FenceNode>) {
                done = Effect(call, outcome);
              } else if constexpr (std::is_same_v<Call, WriteLease>) {
                lease_ = {call.release ? "" : "us", NextVersion(), {}};
                done.version = lease_.version;
                if (call.release) After(300_ms, [this] { OtherTakesLease(); });
              } else if constexpr (std::is_same_v<Call, BeginTerm>) {
                done.term = ++arrays_.at(call.array).term;
              } else if constexpr (!std::is_same_v<Call, Probe> && !std::is_same_v<Call, ProbePortals> &&
                                   !std::is_same_v<Call, Notify> && !std::is_same_v<Call, Report>) {
                done = Effect(call);
              }
            },
            action.what);
      Answer(action.id, outcome, std::move(done));
    });
  }
}

Outcome ScriptedWorld::NextOutcome(const std::string& kind) {
  if (kind == "lease" && others_lead_) return Outcome::kConflict;
  if (!api_ && kind != "fence" && kind != "unfence" && kind != "term") return Outcome::kFailed;
  const auto found = scripted_.find(kind);
  if (found == scripted_.end()) return Outcome::kOk;
  const auto outcome = found->second.first;
  if (--found->second.second == 0) scripted_.erase(found);
  return outcome;
}

void ScriptedWorld::Answer(uint64_t action, Outcome outcome, Done done) {
  done.action = action;
  done.outcome = outcome;
  Feed(std::move(done));
}

Done ScriptedWorld::Effect(const PutNodeFence& call, Outcome& outcome) {
  if (!call.fence.version.empty() && !fences_.contains(call.fence.node)) {
    outcome = Outcome::kGone;
    return {};
  }
  auto& stored = fences_[call.fence.node];
  if (stored.version != call.fence.version) {
    outcome = Outcome::kConflict;
    return {};
  }
  const auto uid = stored.uid.empty() ? Uid("fence-" + call.fence.node.value()) : stored.uid;
  stored = call.fence;
  stored.uid = uid;
  stored.version = NextVersion();
  After(5_ms, [this, fence = stored] {
    if (fences_.contains(fence.node)) Feed(FenceSeen{fence});
  });
  Done done;
  done.version = stored.version;
  return done;
}

Done ScriptedWorld::Effect(const ReadKubelet& call) {
  Done done;
  const auto node = nodes_.find(NameOf(call.node));
  if (node == nodes_.end()) return done;
  const auto& lease = renewals_[node->first];
  done.kubelet = KubeletState{lease.renewal, node->second.ready, lease.renewed};
  return done;
}

Done ScriptedWorld::Effect(const AskReplicas& call) {
  Done done;
  const bool hears = heard_by_other_.contains(NameOf(call.node));
  done.votes = {.answered = 1, .silent = 0, .heard_by = hears ? "them" : "", .sights = {}};
  if (ended_for_other_.contains(NameOf(call.node))) done.votes.kernel_answers_to = "them";
  if (other_sees_) done.votes.sights.push_back(*other_sees_);
  return done;
}

void ScriptedWorld::OtherTakesLease() {
  if (!other_sees_ || !lease_.holder.empty()) return;
  others_lead_ = true;
  lease_ = {"them", NextVersion(), {}};
}

Done ScriptedWorld::Effect(const RemoveNodeFence& call) {
  fences_.erase(call.node);
  After(5_ms, [this, node = call.node] { Feed(FenceGone{node}); });
  return {};
}

void ScriptedWorld::EndFencedGrants(ArrayModel& array) {
  for (const auto& [node, fence] : array.fences)
    std::erase_if(array.holders, [&](const auto& holder) {
      return fence.volumes.contains(holder.first) && IsIdFor(fence.node, holder.second) &&
             !array.hidden.contains(holder.first);
    });
}

Done ScriptedWorld::Effect(const FenceNode& call, Outcome& outcome) {
  auto& array = arrays_.at(call.array);
  auto& fence = array.fences[call.node];
  if (fence.generation == 0) fence = {call.node, ++array.last, {}};
  fence.manual = false;
  fence.volumes.insert(call.volumes.begin(), call.volumes.end());
  std::erase_if(array.holders, [&](const auto& holder) {
    const bool ends = IsMachineId(call.node) || call.volumes.contains(holder.first);
    return ends && IsIdFor(call.node, holder.second) && !array.hidden.contains(holder.first);
  });
  const bool over = std::none_of(array.holders.begin(), array.holders.end(), [&](const auto& holder) {
    return call.volumes.contains(holder.first) && IsIdFor(call.node, holder.second);
  });
  Done done;
  if (!over) outcome = Outcome::kFailed;
  if (over) done.fence = fence;
  return done;
}

Done ScriptedWorld::Effect(const UnfenceNode& call) {
  arrays_.at(call.array).fences.erase(call.node);
  return {};
}

Done ScriptedWorld::Effect(const SetTaint& call) {
  auto& node = nodes_.at(call.node);
  if (call.taint == OurTaint::kFenced) {
    node.taint = call.value;
  } else {
    node.plugin_taint = call.value.empty() ? PluginTaint::kNone : PluginTaint::kByLeader;
  }
  node.version = NextVersion();
  After(5_ms, [this, node] { Feed(NodeSeen{node}); });
  Done done;
  done.version = node.version;
  return done;
}

Done ScriptedWorld::Effect(const ChargeVolume& call) {
  After(5_ms, [this, call] { Feed(VolumeCharged{call.volume, call.nodes}); });
  return {};
}

Done ScriptedWorld::Effect(const DeletePod& call) {
  const auto found = pods_.find(call.pod);
  if (found == pods_.end() || found->second.uid != call.uid) return {};
  auto& machine = Find(found->second.node.value());
  if (call.grace == Grace::kOrdinary && (!machine.kubelet || machine.failing.size() > 1)) {
    found->second.deleting = true;  // nobody there to end it, or it hangs
    After(5_ms, [this, pod = found->second] { Feed(PodSeen{pod}); });
    return {};
  }
  if (finalizers_.contains(call.pod)) {
    auto& kept = found->second;
    kept.deleting = kept.deleted = true;
    kept.running = false;
    After(5_ms, [this, pod = kept] { Feed(PodSeen{pod}); });
    return {};
  }
  After(5_ms, [this, id = call.pod] { Feed(PodGone{id}); });
  auto pod = found->second;
  pods_.erase(found);
  for (auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) {
      // One that is stuck still unstages.
      if (call.grace == Grace::kOrdinary && machine.cleans)
        machine.present.erase(volume), arrays_.at(array).holders.erase(volume);
    }
  if (!pod.owner_kind.empty()) After(30_ms, [this, pod] { Replace(pod); });
  return {};
}

// Its finalizer is gone, and so is its object.
void ScriptedWorld::Finalize(PodId id) {
  finalizers_.erase(id);
  const auto pod = pods_.extract(id).mapped();
  Feed(PodGone{id});
  After(30_ms, [this, pod] { Replace(pod); });
}

// Its owner makes a new one, and it is scheduled where it fits.
void ScriptedWorld::Replace(Pod pod) {
  pod.uid = Uid(pod.uid.value() + "'");
  pod.deleting = pod.deleted = pod.crash_looping = false;
  pod.running = true;
  for (const auto& [name, node] : nodes_)
    if (name != pod.node && node.ready && node.taint.empty() && node.plugin_taint == PluginTaint::kNone &&
        Fits(*pod.scheduling, *node.labels)) {
      pod.node = name;
      break;
    }
  for (const auto& [array, volumes] : pod.volumes)
    for (const auto& volume : volumes) {
      const auto& holders = arrays_.at(array).holders;
      const auto held = holders.find(volume);
      if (held != holders.end() && !Find(NameOf(held->second).value()).cleans) continue;
      arrays_.at(array).holders[volume] = machines_.at(pod.node).id;
      machines_.at(pod.node).present.insert(volume);
    }
  pods_[pod.id] = pod;
  Feed(PodSeen{pod});
}

void ScriptedWorld::Reboot(Machine& machine) {
  machine.boot += "'";
  machine.present.clear();
  machine.failing.clear();
  machine.failed.clear();
  machine.idle.clear();
}

// The node knows of a fence: the containers of what is fenced end, and it unmounts.
void ScriptedWorld::Clean(Machine& machine) {
  if (!machine.heartbeats || !machine.cleans) return;
  for (const auto& [id, array] : arrays_) {
    const auto fence = array.fences.find(machine.id);
    if (fence == array.fences.end()) continue;
    for (const auto& volume : fence->second.volumes)
      machine.present.erase(volume), machine.failing.erase(volume), machine.failed.erase(volume);
  }
}

ScriptedWorld::Machine& ScriptedWorld::Find(const std::string& name) {
  const auto found = machines_.find(NodeName(name));
  if (found == machines_.end()) throw std::runtime_error("no node " + name);
  return found->second;
}

}  // namespace lunkeeper::fencing
