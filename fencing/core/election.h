#pragma once
// Who acts: the replica that holds the lease. A candidate waits until the stored lease has not changed for
// its whole duration as seen here, and takes it by a conditional write. The leader counts from when it *sent*
// its last successful renewal, and stops a margin earlier; clocks are never compared. A lease is no proof:
// what must never happen twice is held by the arrays' terms. One thread owns it.

#include <optional>
#include <set>
#include <string>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

class Election {
 public:
  Election(const Settings& settings, std::string self) : settings_(settings), self_(std::move(self)) {}

  void NoteLease(const LeaseSeen& seen, Instant now);
  // The answer to a write. To one that was given up it says nothing.
  void NoteAnswer(const WriteLease& write, Outcome outcome, const Version& version, Instant now);
  // A write that is due. Marks it as sent. One at a time, but for a renewal that is not answered: after a
  // second there is another one beside it. `defers`: it takes the lease only if no other replica has, in the
  // time of one more lease.
  std::optional<WriteLease> DueWrite(Instant now, bool defers);
  // The write that gives the lease up, so that another replica takes it; it leads no more from now on, and
  // leaves the lease alone for as long as the others need to take it. None: another write is under way.
  std::optional<WriteLease> GiveUp(Instant now);

  bool HoldsLease(Instant now) const { return leads_until_ && now < *leads_until_; }
  // Whose the lease was when it was last read; empty: nobody's.
  const std::string& holder() const { return seen_.holder; }
  // When the renewal by which it leads was sent; rises with each renewal; empty: it never led.
  std::optional<Instant> renewed_at() const { return renewed_at_; }

 private:
  void LeaveToOthers(Instant now);

  const Settings& settings_;
  const std::string self_;
  LeaseSeen seen_;
  bool known_ = false;
  Instant changed_at_;
  std::set<Instant> under_way_;  // writes, by when they were sent; without what was given up
  int unanswered_ = 0;           // own writes that a read has shown, since the last one that was answered
  Instant sent_at_;              // the last write; before the first: the clock's start
  std::optional<Instant> leads_until_, renewed_at_, written_at_, abstains_until_;
};

}  // namespace lunkeeper::fencing
