#include "fencing/core/state.h"

#include <algorithm>
#include <iterator>

namespace lunkeeper::fencing {
namespace {

// Replicas repeat a request each half second while a node waits for the volume, so ten are missing by then.
constexpr Span kRequestLasts = 5_s;
// A call to begin one takes up to some seconds where an array is slow.
constexpr Span kTermlessAfter = 10_s;

}  // namespace

VolumesByArray State::WantedFrom(const NodeId& node) const {
  VolumesByArray result;
  for (const auto& [volume, request] : wanted)
    if (request.holder == node && now - request.at < kRequestLasts && !cluster.IsHeldBack(volume))
      result[request.array].insert(volume);
  return result;
}

Classification State::ClassifyAndNote(const NodeId& node, const Signals& signals) {
  const auto classification = Classify(signals, settings);
  limits.NoteClassification(node, classification, now);
  if (classification.response == Response::kFence) {
    due.try_emplace(node, DueFence{now, {}});
  } else {
    due.erase(node);
  }
  return classification;
}

Plan State::PlanFor(const NodeId& node, const std::set<ArrayId>& only, const VolumesByArray& begun,
                    bool works) const {
  if (!IsCurrent(node) || IsMachineId(node)) return {};  // a machine's pods go with the node that it is now
  if (only.empty() && !works) return PlanMove(cluster, settings, node);
  const auto reaches = [&](const NodeId& place, const ArrayId& array, const VolumeSet& volumes) {
    const auto* fence = arrays.Find(array, node);
    return (fence && Covers(fence->volumes, volumes)) || evidence.CouldReach(place, array, now);
  };
  return PlanMove(cluster, settings, node, only, reaches, begun);
}

std::map<ArrayId, ArrayFence> State::FencesOfMachine(const NodeId& node) const {
  return arrays.FencesOf(MachineId(MachineOf(node)));
}

Plan State::PlanForMachine(const NodeId& node) const {
  const auto fences = FencesOfMachine(node);
  // Of each array what it fences itself: its word counts for no other's volumes.
  const auto is_cut = [&](const Pod& pod) {
    return std::any_of(fences.begin(), fences.end(), [&](const auto& fence) {
      const auto used = pod.volumes.find(fence.first);
      return used != pod.volumes.end() && HaveCommonVolume(used->second, fence.second.volumes);
    });
  };
  auto plan = PlanFor(node, {});
  std::vector<const Pod*> cut;
  std::copy_if(plan.move.begin(), plan.move.end(), std::back_inserter(cut),
               [&](const Pod* pod) { return is_cut(*pod); });
  Companions companions(cluster);
  plan.move = WithTied(std::move(cut), plan.move, companions);
  plan.volumes.clear();
  for (const Pod* pod : plan.move)
    for (const auto& [array, used] : pod->volumes) plan.volumes[array].insert(used.begin(), used.end());
  return plan;
}

bool State::IsFailingOver() const {
  const auto& fences = cluster.fences();
  return std::any_of(fences.begin(), fences.end(), [](const auto& fence) {
    const auto phase = fence.second.phase;
    return phase != Phase::kRefused && phase != Phase::kMoved && phase != Phase::kAwaitingNode;
  });
}

std::vector<ArrayId> State::UnseenArrays() const {
  auto unseen = arrays.Ids();
  std::erase_if(unseen, [&](const auto& array) { return !evidence.IsUnseen(array, now); });
  return unseen;
}

std::vector<ArrayId> State::TermlessArrays() const {
  std::vector<ArrayId> termless;
  for (const auto& [array, since] : termless_since)
    if (now - since >= kTermlessAfter) termless.push_back(array);
  return termless;
}

void State::ForgetNodes() {
  std::erase_if(wanted, [&](const auto& request) { return now - request.second.at >= kRequestLasts; });
  std::erase_if(crash_loops,
                [&](const auto& loop) { return now - loop.second.seen_at >= settings.crash_loop_over; });
  // A fence at an array may stay for good, and alone is no reason: it is seen there when the node returns.
  const auto recorded = [&](const NodeId& node) { return cluster.FindFence(node) != nullptr; };
  for (const auto& node : evidence.ForgetNodes(now, recorded)) {
    due.erase(node);
    unrecorded.erase(node);
    decided_dead.erase(node);
    came_back.erase(node);
    for (const auto kind :
         {ReportKind::kClassification, ReportKind::kRefused, ReportKind::kProgress, ReportKind::kHeldBack})
      WithdrawReport(kind, node);
  }
}

void State::LoseLead() {
  arrays.LostTerms();
  unrecorded.clear();
  decided_dead.clear();
}

void State::ReportOnce(Report report) {
  if (report.text.empty()) return WithdrawReport(report.kind, report.node);
  Said latest{report.text, report.refusal};
  const auto [last, is_new] = said.try_emplace({report.kind, report.node}, latest);
  if (!is_new && last->second == latest) return;
  last->second = std::move(latest);
  outbox.SendAction(std::move(report));
}

}  // namespace lunkeeper::fencing
