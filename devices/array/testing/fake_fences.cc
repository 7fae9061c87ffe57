#include "devices/array/testing/fake_fences.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lunkeeper {

absl::Status FakeFences::CheckTerm(Term term) const {
  if (term == term_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("term ", term, " is over: term ", term_, " is in force"));
}

FenceRecord FakeFences::RecordFence(const FenceRequest& request, Generation generation) {
  FenceRecord& fence = fences_[request.node];
  if (fence.generation == 0) fence.generation = generation;
  fence.node = request.node;
  fence.term = term_;
  if (!request.node_uid.empty()) fence.node_uid = request.node_uid;
  if (!request.fenced_by.empty() || !request.reason.empty()) {
    fence.fenced_by = request.fenced_by;
    fence.reason = request.reason;
    fence.fenced_at = absl::Now();
  }
  for (const VolumeId& id : request.volumes) {
    if (std::find(fence.volumes.begin(), fence.volumes.end(), id) == fence.volumes.end())
      fence.volumes.push_back(id);
  }
  return fence;
}

absl::Status FakeFences::RemoveFence(const NodeId& node, Generation generation) {
  const auto fence = fences_.find(node);
  if (fence == fences_.end()) return absl::OkStatus();
  if (fence->second.generation != generation) {
    return absl::FailedPreconditionError(absl::StrCat("unfence node ", node.value(),
                                                      ": the fence in force has generation ",
                                                      fence->second.generation, ", not ", generation));
  }
  fences_.erase(fence);
  return absl::OkStatus();
}

std::vector<FenceRecord> FakeFences::ListFences() const {
  std::vector<FenceRecord> fences;
  for (const auto& [node, fence] : fences_) fences.push_back(fence);
  return fences;
}

}  // namespace lunkeeper
