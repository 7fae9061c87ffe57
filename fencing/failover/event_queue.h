#pragma once
// Sends events to Kubernetes after the calls that failover needs: events are for people, and would slow those
// calls down. They wait while the API server is busy, but not for long. Beyond a bound, new events are
// dropped.
//
// One thread uses it. The events are sent from a thread of its own; failures are logged by KubeActions.
// `kube` outlives it.

#include <atomic>
#include <memory>
#include <vector>

#include "fencing/failover/clock.h"
#include "fencing/failover/kube_actions.h"

namespace lunkeeper::fencing {

class EventQueue {
 public:
  EventQueue(KubeActions& kube, Executor& executor) : kube_(kube), worker_(executor.MakeWorkers(1)) {}
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
  const std::unique_ptr<Workers> worker_;
};

}  // namespace lunkeeper::fencing
