// A mutant is a build of the core with one mistake in it. They are made here, where events and actions pass,
// and not in the core, so that the core that is tested is the one that is shipped.

#include "fencing/sim/fault_injection.h"

#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"

namespace lunkeeper::fencing::sim {

Settings FaultInjection::Change(const World& world, Settings settings) {
  if (world.Has(Mutant::kBudgetIgnored)) settings.budget_percent = 100;
  return settings;
}

bool FaultInjection::Hear(Event& event) {
  // As if the array heard somebody, only not the nodes that are there.
  if (const auto* lost = std::get_if<ArrayLost>(&event.what);
      lost && world_.Has(Mutant::kDeadArrayIsSilence)) {
    ArrayView view = last_views_[lost->array];
    view.array = lost->array;
    view.asked = event.now;
    view.landed = {{NodeId("ghost.1"), world_.events()}};
    event.what = view;
  } else if (const auto* view = std::get_if<ArrayView>(&event.what)) {
    last_views_[view->array] = *view;
  }
  if (world_.Has(Mutant::kStorageEvidenceIgnored)) {
    if (auto* view = std::get_if<ArrayView>(&event.what)) {
      view->landed.clear();
      for (auto& holding : view->holdings) holding.commands = 1;
    }
  }
  if (auto* probe = std::get_if<ProbeAnswer>(&event.what))
    if (world_.Has(Mutant::kProbeForged) && world_.now() > WorldTime(15_s)) probe->answered = false;
  if (world_.Has(Mutant::kKubeletIgnored) && std::holds_alternative<KubeletLease>(event.what)) return false;
  if (auto* done = std::get_if<Done>(&event.what);
      done && done->kubelet && world_.Has(Mutant::kKubeletIgnored))
    done->kubelet = KubeletState{{}, false};
  if (auto* pod = std::get_if<PodSeen>(&event.what))
    if (world_.Has(Mutant::kOptOutIgnored)) pod->pod.policy = FailoverPolicy::kUnsaid;
  if (auto* view = std::get_if<ArrayView>(&event.what))
    if (world_.Has(Mutant::kOrphanFenceIgnored))
      std::erase_if(view->fences,
                    [&](const auto& fence) { return !world_.api->fences().contains(fence.node); });
  if (auto* done = std::get_if<Done>(&event.what))
    if (world_.Has(Mutant::kVotesIgnored)) done->votes.heard_by.clear();
  if (auto* done = std::get_if<Done>(&event.what)) {
    if (world_.Has(Mutant::kSightsIgnored)) done->votes.sights.clear();
    for (auto& sight : done->votes.sights) sight.nodes += world_.Has(Mutant::kSightsForged) ? 1 : 0;
  }
  if (auto* charged = std::get_if<VolumeCharged>(&event.what))
    if (world_.Has(Mutant::kChargeForgotten)) charged->nodes.clear();
  if (auto* heartbeat = std::get_if<Heartbeat>(&event.what))
    if (world_.Has(Mutant::kCleanForged)) heartbeat->present.clear();
  return true;
}

std::vector<Action> FaultInjection::Act(const Action& action, std::vector<Done>& answers) {
  std::vector<Action> result{action};
  if (auto* call = std::get_if<FenceNode>(&action.what)) {
    if (world_.Has(Mutant::kFenceNotVerified)) {
      Done done;
      done.action = action.id;
      done.fence = ArrayFence{call->node, 1, call->volumes};
      answers.push_back(done);
    }
    if (world_.Has(Mutant::kDeleteBeforeFence))
      for (const auto& [id, pod] : world_.api->pods())
        if (pod.node == NameOf(call->node) && pod.policy != FailoverPolicy::kNever)
          result.insert(result.begin(), {0, DeletePod{id, pod.uid, Grace::kNone}});
    if (world_.Has(Mutant::kFencesPartOfTheVolumes) && call->volumes.size() > 1) {
      Done done;
      done.action = action.id;
      done.fence = ArrayFence{call->node, 1, call->volumes};
      answers.push_back(done);
      std::get<FenceNode>(result.back().what).volumes = {*call->volumes.begin()};
    }
  }
  if (world_.Has(Mutant::kStaleLeaderActs) && std::holds_alternative<WriteLease>(action.what)) {
    Done done;
    done.action = action.id;
    done.version = Version("forged");
    answers.push_back(done);
  }
  const auto* taint = std::get_if<SetTaint>(&action.what);
  if (world_.Has(Mutant::kTaintForgotten) && taint && taint->value.empty()) return {};
  if (world_.Has(Mutant::kRecordNotRemoved) && std::holds_alternative<RemoveNodeFence>(action.what))
    return {};
  return result;
}

}  // namespace lunkeeper::fencing::sim
