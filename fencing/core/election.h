#pragma once
// Who acts: the replica that holds the lease. A candidate waits until the stored lease has not changed for
// its whole duration as seen here, and takes it by a conditional write. The leader counts from when it *sent*
// its last successful renewal, and stops a margin earlier; clocks are never compared. A lease is no proof:
// what must never happen twice is held by the arrays' terms. One thread owns it.

#include <optional>
#include <string>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

class Election {
 public:
  Election(const Settings& settings, std::string self) : settings_(settings), self_(std::move(self)) {}

  void On(const LeaseSeen& seen, Millis now);
  // The answer to a write; to any but the last it says nothing.
  void Written(const WriteLease& write, Outcome outcome, const Version& version, Millis now);
  // A write that is due, at most one at a time. Marks it as sent.
  std::optional<WriteLease> Due(Millis now);

  bool Leads(Millis now) const { return now < leads_until_; }
  // When the renewal by which it leads was sent; rises with each renewal.
  Millis renewed_at() const { return renewed_at_; }

 private:
  const Settings& settings_;
  const std::string self_;
  LeaseSeen seen_;
  bool known_ = false;
  Millis changed_at_ = 0;
  bool writing_ = false;
  Millis sent_at_ = 0;
  Millis leads_until_ = 0, renewed_at_ = 0, written_at_ = 0;
};

}  // namespace lunkeeper::fencing
