#include "fencing/failover/event_queue.h"

#include <utility>

namespace lunkeeper::fencing {
namespace {

// A failover of a node with 100 pods makes about as many events. More than this many wait only when the API
// server hardly answers.
constexpr size_t kMostEvents = 500;
// By then a failover's calls have been made, unless the API server is in trouble; people look for the events.
constexpr Span kLongestDelay = 2_s;

}  // namespace

void EventQueue::Stop() { worker_->Stop(); }

// Dropping the newest and not the oldest keeps the first events of a failover, which say why it began.
void EventQueue::AddEvent(kube::ObjectEvent event, Instant now) {
  if (events_.size() + sending_ >= kMostEvents) return;
  if (events_.empty()) since_ = now;
  events_.push_back(std::move(event));
}

void EventQueue::SendEvents(Instant now, bool busy) {
  if (events_.empty() || (busy && now - since_ < kLongestDelay)) return;
  sending_ += events_.size();
  for (kube::ObjectEvent& event : std::exchange(events_, {}))
    worker_->Post([this, event = std::move(event)] {
      kube_.RecordEvent(event);
      --sending_;
    });
}

}  // namespace lunkeeper::fencing
