#pragma once
// The arrays as the leader knows them: the term it acts with on each, and the fences in force there. A view
// that was asked for before our own last change there is old and says nothing about fences. What nodes
// learn is kept apart from it, in failover/fence_board.h, which says why. One thread owns it.

#include <map>
#include <set>

#include "fencing/core/event.h"

namespace lunkeeper::fencing {

class KnownArrays {
 public:
  // There is such an array, which may not have answered yet.
  void NoteConfigured(const ArrayId& array) { arrays_[array]; }
  void NoteView(const ArrayView& view);
  void NoteFence(const ArrayId& array, const ArrayFence& fence, Instant now);
  // What the last look showed may have changed since.
  void NoteDoubt(const ArrayId& array, Instant now);
  void NoteUnfence(const ArrayId& array, const NodeId& node, Instant now);
  void NoteTerm(const ArrayId& array, Term term, Instant now);
  void LostTerm(const ArrayId& array);
  void LostTerms();
  // There is no such array any more; what is answered for it later changes nothing.
  void Remove(const ArrayId& array) { arrays_.erase(array); }

  // 0: none yet.
  Term TermOf(const ArrayId& array) const;
  bool IsConfigured(const ArrayId& array) const { return arrays_.contains(array); }
  // Every fence there is known.
  bool IsKnown(const ArrayId& array) const;
  const ArrayFence* Find(const ArrayId& array, const NodeId& node) const;
  // It was seen or made since this leader's term there began: an earlier one may have been lifted by another
  // leader, whatever is known of it here.
  bool IsSure(const ArrayId& array, const NodeId& node) const;
  // What is not among them is in force nowhere there: a look that began in this leader's term shows all.
  bool IsSure(const ArrayId& array) const;
  // Closed to every node of that name, and none of them has a grant left.
  bool IsClosed(const ArrayId& array, const NodeName& machine) const;
  // All fences of one node, or of all.
  std::map<ArrayId, ArrayFence> FencesOf(const NodeId& node) const;
  std::vector<std::pair<ArrayId, ArrayFence>> AllFences() const;
  // All that are configured.
  std::vector<ArrayId> Ids() const;

 private:
  struct State {
    bool known = false;
    Term term = 0;
    std::optional<Instant> changed_at, term_at;
    std::map<NodeId, ArrayFence> fences;
    std::set<NodeId> sure;  // of these
    bool all_sure = false;  // and there are no others
    void BeUnsure() { sure.clear(), all_sure = false; }
  };
  std::map<ArrayId, State> arrays_;
};

}  // namespace lunkeeper::fencing
