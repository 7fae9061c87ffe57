// A poll and a change of our own may cross: the poll was sent before the change reached the array, and
// answers after it. Such a view would undo in our memory what the array has stored, so each change notes its
// time, and a view that was asked for before it says nothing about fences. The next poll comes half a second
// later.

#include "fencing/core/known_arrays.h"

#include <algorithm>

namespace lunkeeper::fencing {

void KnownArrays::NoteView(const ArrayView& view) {
  auto& state = arrays_[view.array];
  if (view.asked < state.changed_at) return;
  state.known = true;
  state.fences.clear();
  state.sure.clear();
  state.all_sure = state.term != 0 && !(view.asked < state.term_at);
  for (const auto& fence : view.fences) {
    state.fences[fence.node] = fence;
    if (state.all_sure) state.sure.insert(fence.node);
  }
  const bool machines = std::any_of(view.fences.begin(), view.fences.end(),
                                    [](const auto& fence) { return IsMachineId(fence.node); });
  // A fence is in force for what is drained: while the grant is there, commands may be.
  for (const auto& holding : view.holdings) {
    const auto fence = state.fences.find(holding.node);
    if (fence != state.fences.end() && fence->second.volumes.erase(holding.volume) > 0)
      fence->second.drained = false;
    if (!machines) continue;
    const auto machine = state.fences.find(MachineId(MachineOf(holding.node)));
    if (machine != state.fences.end()) machine->second.drained = false;
  }
}

void KnownArrays::NoteFence(const ArrayId& array, const ArrayFence& fence, Instant now) {
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return;
  found->second.fences[fence.node] = fence;
  if (found->second.term != 0) found->second.sure.insert(fence.node);
  found->second.changed_at = now;
}

void KnownArrays::NoteDoubt(const ArrayId& array, Instant now) {
  const auto found = arrays_.find(array);
  if (found != arrays_.end()) found->second.all_sure = false, found->second.changed_at = now;
}

void KnownArrays::NoteUnfence(const ArrayId& array, const NodeId& node, Instant now) {
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return;
  found->second.fences.erase(node);
  found->second.sure.erase(node);
  found->second.changed_at = now;
}

void KnownArrays::NoteTerm(const ArrayId& array, Term term, Instant now) {
  // An array that was removed meanwhile stays unknown: the answer to a call must not bring it back.
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return;
  found->second.term = term;
  found->second.term_at = now;
  found->second.BeUnsure();
}

void KnownArrays::LostTerm(const ArrayId& array) {
  if (const auto found = arrays_.find(array); found != arrays_.end())
    found->second.term = 0, found->second.BeUnsure();
}

void KnownArrays::LostTerms() {
  for (auto& [array, state] : arrays_) state.term = 0, state.BeUnsure();
}

Term KnownArrays::TermOf(const ArrayId& array) const {
  const auto found = arrays_.find(array);
  return found == arrays_.end() ? 0 : found->second.term;
}

bool KnownArrays::IsKnown(const ArrayId& array) const {
  const auto found = arrays_.find(array);
  return found != arrays_.end() && found->second.known;
}

const ArrayFence* KnownArrays::Find(const ArrayId& array, const NodeId& node) const {
  const auto state = arrays_.find(array);
  if (state == arrays_.end()) return nullptr;
  const auto fence = state->second.fences.find(node);
  return fence == state->second.fences.end() ? nullptr : &fence->second;
}

bool KnownArrays::IsSure(const ArrayId& array, const NodeId& node) const {
  const auto state = arrays_.find(array);
  return state != arrays_.end() && state->second.sure.contains(node);
}

bool KnownArrays::IsSure(const ArrayId& array) const {
  const auto state = arrays_.find(array);
  return state != arrays_.end() && state->second.all_sure;
}

bool KnownArrays::IsClosed(const ArrayId& array, const NodeName& machine) const {
  const auto* fence = Find(array, MachineId(machine.value()));
  return fence && fence->drained;
}

std::map<ArrayId, ArrayFence> KnownArrays::FencesOf(const NodeId& node) const {
  std::map<ArrayId, ArrayFence> result;
  for (const auto& [array, state] : arrays_)
    if (const auto fence = state.fences.find(node); fence != state.fences.end())
      result[array] = fence->second;
  return result;
}

std::vector<std::pair<ArrayId, ArrayFence>> KnownArrays::AllFences() const {
  std::vector<std::pair<ArrayId, ArrayFence>> result;
  for (const auto& [array, state] : arrays_)
    for (const auto& [node, fence] : state.fences) result.emplace_back(array, fence);
  return result;
}

std::vector<ArrayId> KnownArrays::Ids() const {
  std::vector<ArrayId> result;
  for (const auto& [array, state] : arrays_) result.push_back(array);
  return result;
}

}  // namespace lunkeeper::fencing
