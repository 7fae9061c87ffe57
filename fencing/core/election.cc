// The scheme of client-go's leader election: the lease's own times are never read, only whether its version
// has changed, and how long ago that was by the clock of this replica. A leader stops `lease_margin` before
// any other replica may take over, and counts from when its renewal was sent, as the API server may have
// stored it at any moment between sending and answering.

#include "fencing/core/election.h"

namespace lunkeeper::fencing {

void Election::NoteLease(const LeaseSeen& seen, Instant now) {
  // Read before our own last write was answered: older than what we know.
  if (seen.asked < written_at_) return;
  if (known_ && seen.version == seen_.version && seen.holder == seen_.holder) return;
  // Another's name on it: whatever we held is over.
  if (seen.holder != self_) leads_until_.reset();
  if (seen.holder == self_ && ++unanswered_ >= 2 && !HoldsLease(now)) LeaveToOthers(now);
  seen_ = seen;
  known_ = true;
  changed_at_ = now;
}

// Its writes are stored and their answers are lost: it does not lead, and no other one takes the lease while
// it is renewed.
void Election::LeaveToOthers(Instant now) {
  unanswered_ = 0;
  abstains_until_ = now + 2 * settings_.lease;
}

void Election::NoteAnswer(const WriteLease& write, Outcome outcome, const Version& version, Instant now) {
  if (under_way_.erase(write.sent) == 0) return;
  // Somebody else wrote: whether it was a takeover, the next read will tell. Until then, do not lead. It may
  // also have been a renewal beside this one.
  if (outcome == Outcome::kConflict && under_way_.empty() && write.expected == seen_.version)
    leads_until_.reset();
  if (outcome != Outcome::kOk || (renewed_at_ && write.sent < *renewed_at_)) return;
  // A read that began later may have shown more, such as another's name.
  if (seen_.version == write.expected) {
    seen_ = {write.release ? "" : self_, version, now};
  } else if (seen_.holder != self_) {
    return;
  }
  written_at_ = now;
  changed_at_ = now;
  unanswered_ = 0;
  if (write.release) return;
  abstains_until_.reset();
  renewed_at_ = write.sent;
  leads_until_ = write.sent + settings_.lease - settings_.lease_margin;
}

std::optional<WriteLease> Election::DueWrite(Instant now, bool defers) {
  if (!known_ || now < abstains_until_) return std::nullopt;
  std::erase_if(under_way_, [&](Instant sent) { return now - sent >= settings_.lease; });
  const auto sent_within = [&](Span time) { return now - sent_at_ < time; };
  const bool ours = seen_.holder == self_;
  // Its connection may lead to an API server that hangs, while others behind the same address answer.
  if (!under_way_.empty() && !(ours && HoldsLease(now))) return std::nullopt;
  const bool is_answered = written_at_ && renewed_at_ && *written_at_ >= sent_at_;
  if (ours && now - (is_answered ? *renewed_at_ : sent_at_) < settings_.lease_renew) return std::nullopt;
  const int leases = (seen_.holder.empty() ? 0 : 1) + (defers ? 1 : 0);
  if (!ours && now - changed_at_ < leases * settings_.lease) return std::nullopt;
  if (sent_within(settings_.retry)) return std::nullopt;
  under_way_.insert(now);
  sent_at_ = now;
  return WriteLease{seen_.version, now};
}

// If this write is lost, the lease runs out, which takes no longer than this replica abstains.
std::optional<WriteLease> Election::GiveUp(Instant now) {
  if (!under_way_.empty()) return std::nullopt;
  leads_until_.reset();
  abstains_until_ = now + settings_.lease;
  under_way_.insert(now);
  sent_at_ = now;
  return WriteLease{seen_.version, now, true};
}

}  // namespace lunkeeper::fencing
