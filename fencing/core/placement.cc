#include "fencing/core/placement.h"

#include <algorithm>

namespace lunkeeper::fencing {
namespace {

bool SeesMore(const ReplicaSight& other, const ReplicaSight& own) {
  return other.arrays >= own.arrays && other.nodes >= own.nodes &&
         (other.arrays > own.arrays || other.nodes > own.nodes);
}

std::string Describe(const ReplicaSight& sight) {
  return std::to_string(sight.arrays) + " of the arrays and " + std::to_string(sight.nodes) + " of the nodes";
}

}  // namespace

// Both sides are compared as of about the same moment: an answer that was long on its way says nothing. Nor
// does one that did not come, and the time begins anew.
void Placement::NoteSights(const AskReplicas& call, const ReplicaSight& own,
                           const std::vector<ReplicaSight>& others, Instant now) {
  own_ = own;
  better_.reset();
  if (now - call.asked < 2 * settings_.sights_every)
    for (const auto& other : others)
      if (other.age >= settings_.sighted && SeesMore(other, better_ ? *better_ : own)) better_ = other;
  if (!better_) return better_since_.reset();
  if (!better_since_) better_since_ = call.asked;
  better_until_ = call.asked;
}

// What comes of a failover that has just begun is known best here. One that goes on for longer may wait for
// just what this replica does not see, and is no reason to stay.
void Placement::NoteTick(bool leads, bool busy, Instant now) {
  if (!leads) better_since_.reset();
  if (!busy) return busy_since_.reset();
  if (!busy_since_) busy_since_ = now;
}

const ReplicaSight* Placement::Successor(Instant now) const {
  if (!better_since_ || *better_until_ - *better_since_ < settings_.outseen) return nullptr;
  if (now - *better_until_ >= settings_.outseen) return nullptr;  // nobody has answered since
  if (yielded_at_ && now - *yielded_at_ < settings_.yield_pause) return nullptr;
  if (busy_since_ && now - *busy_since_ < settings_.yield_waits) return nullptr;
  return &*better_;
}

std::string Placement::WhyYield() const {
  return better_->replica + " is to lead: it sees " + Describe(*better_) + ", this controller " +
         Describe(own_);
}

}  // namespace lunkeeper::fencing
