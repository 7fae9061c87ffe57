#pragma once
// The fences of a FakeArray, by node, and the term in force. Not thread-safe: the array's mutex guards it.

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "devices/array/fence_control.h"
#include "devices/node_id.h"

namespace lunkeeper {

class FakeFences {
 public:
  Term BeginTerm() { return ++term_; }
  // FAILED_PRECONDITION: a later term has begun.
  absl::Status CheckTerm(Term term) const;
  bool IsFenced(const NodeId& node) const {
    return fences_.contains(node) || fences_.contains(MachineId(MachineOf(node)));
  }
  // In the term in force, and with this generation if it is new. A fence that exists keeps its generation and
  // gets the volumes that it lacks.
  FenceRecord RecordFence(const FenceRequest& request, Generation generation);
  // OK without such a fence; FAILED_PRECONDITION when it has another generation.
  absl::Status RemoveFence(const NodeId& node, Generation generation);
  std::vector<FenceRecord> ListFences() const;

 private:
  Term term_ = 0;
  std::map<NodeId, FenceRecord> fences_;
};

}  // namespace lunkeeper
