#include "fencing/core/election.h"

namespace lunkeeper::fencing {

void Election::On(const LeaseSeen& seen, Instant now) {
  if (seen.asked < written_at_) return;
  if (known_ && seen.version == seen_.version && seen.holder == seen_.holder) return;
  // Another's name on it: whatever we held is over.
  if (seen.holder != self_) leads_until_.reset();
  seen_ = seen;
  known_ = true;
  changed_at_ = now;
}

void Election::Written(const WriteLease& write, Outcome outcome, const Version& version, Instant now) {
  if (write.sent != sent_at_) return;
  writing_ = false;
  if (outcome == Outcome::kConflict) leads_until_.reset();
  if (outcome != Outcome::kOk) return;
  seen_ = {self_, version, now};
  written_at_ = now;
  changed_at_ = now;
  renewed_at_ = write.sent;
  leads_until_ = write.sent + settings_.lease - settings_.lease_margin;
}

std::optional<WriteLease> Election::Due(Instant now) {
  if (!known_) return std::nullopt;
  const auto sent_within = [&](Span time) { return now - sent_at_ < time; };
  if (writing_ && sent_within(settings_.lease)) return std::nullopt;
  const bool ours = seen_.holder == self_;
  if (ours && sent_within(settings_.lease_renew)) return std::nullopt;
  if (!ours && !seen_.holder.empty() && now - changed_at_ < settings_.lease) return std::nullopt;
  if (sent_within(settings_.retry)) return std::nullopt;
  writing_ = true;
  sent_at_ = now;
  return WriteLease{seen_.version, now};
}

}  // namespace lunkeeper::fencing
