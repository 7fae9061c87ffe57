#pragma once
// Sends events to Kubernetes after the calls that failover needs: events are for people, and would slow those
// calls down. They wait while the API server is busy, but not for long. Beyond a bound, new events are
// dropped.
//
// One thread uses it. The events are sent from a thread of its own; failures are logged by KubeActions.
// `kube` outlives it.

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <vector>

#include "fencing/failover/clock.h"
#include "fencing/failover/kube_actions.h"

namespace lunkeeper::fencing {

class EventQueue {
 public:
  explicit EventQueue(KubeActions& kube) : kube_(kube) {}
  ~EventQueue() { Stop(); }

  // Waits for an event that is being sent, and drops the others.
  void Stop();

  void AddEvent(kube::ObjectEvent event, Instant now);
  // Begins to send what waits. With `busy`, only once the first event has waited for long enough.
  void SendEvents(Instant now, bool busy);

 private:
  KubeActions& kube_;
  std::vector<kube::ObjectEvent> events_;  // not sent yet, the first since `since_`
  Instant since_;
  std::atomic<size_t> sending_ = 0;
  boost::asio::thread_pool worker_{1};
};

}  // namespace lunkeeper::fencing
