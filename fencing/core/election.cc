#include "fencing/core/election.h"

namespace lunkeeper::fencing {

void Election::On(const LeaseSeen& seen, Millis now) {
  if (seen.asked < written_at_) return;
  if (known_ && seen.version == seen_.version && seen.holder == seen_.holder) return;
  // Another's name on it: whatever we held is over.
  if (seen.holder != self_) leads_until_ = 0;
  seen_ = seen;
  known_ = true;
  changed_at_ = now;
}

void Election::Written(const WriteLease& write, Outcome outcome, const Version& version, Millis now) {
  if (write.sent != sent_at_) return;
  writing_ = false;
  if (outcome == Outcome::kConflict) leads_until_ = 0;
  if (outcome != Outcome::kOk) return;
  seen_ = {self_, version, now};
  written_at_ = now;
  changed_at_ = now;
  renewed_at_ = sent_at_;
  leads_until_ = sent_at_ + settings_.lease - settings_.lease_margin;
}

std::optional<WriteLease> Election::Due(Millis now) {
  if (!known_) return std::nullopt;
  if (writing_ && now - sent_at_ < settings_.lease) return std::nullopt;
  const bool ours = seen_.holder == self_;
  if (ours && now - sent_at_ < settings_.lease_renew) return std::nullopt;
  if (!ours && !seen_.holder.empty() && now - changed_at_ < settings_.lease) return std::nullopt;
  if (now - sent_at_ < settings_.retry) return std::nullopt;
  writing_ = true;
  sent_at_ = now;
  return WriteLease{seen_.version, now};
}

}  // namespace lunkeeper::fencing
