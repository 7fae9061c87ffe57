#pragma once
// Watches which gateway serves each array on Ceph: for `lunkeeper status`, the metrics and Kubernetes'
// events. It learns of another one within seconds. Nothing is decided by it. Thread-safe; has a thread of its
// own, which the destructor joins.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "base/periodic.h"
#include "devices/array/gateway_state.h"

namespace lunkeeper {

// As last seen. `answers`: also at the last look.
struct WatchedGateway : ArrayGateway {
  bool answers = false;
};

class GatewayWatch {
 public:
  // As in Backends. `tell`, which may be empty, is called for a takeover or handover of the last ten minutes,
  // once it has succeeded no more: so one is also told that came about while no controller ran. Of several
  // controllers each calls it.
  GatewayWatch(std::function<std::vector<ArrayGateway>()> ask,
               std::function<absl::Status(const ArrayGateway&)> tell,
               absl::Duration look_every = absl::Seconds(5));

  // In order of the arrays' names; one that does not answer now is in it as it was, and one that was removed
  // is not.
  std::vector<WatchedGateway> ListGateways() const ABSL_LOCKS_EXCLUDED(mu_);
  void ReportMetrics(Metrics& metrics) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Seen {
    std::optional<GatewayState> state;  // nothing: the array is gone, and may come back
    bool answers = false;
    uint64_t takeovers = 0, handovers = 0;  // since the first look
  };
  void Look() ABSL_LOCKS_EXCLUDED(mu_);
  void NoteAnswers(const std::vector<ArrayGateway>& gateways) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it is another one than at the last look; not at the first. What was seen then is added to it.
  bool NoteGateway(ArrayGateway& gateway) ABSL_LOCKS_EXCLUDED(mu_);
  void TellGateway(const ArrayGateway& gateway);

  const std::function<std::vector<ArrayGateway>()> ask_;
  const std::function<absl::Status(const ArrayGateway&)> tell_;
  mutable absl::Mutex mu_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, uint64_t> told_, failed_;  // epochs, by array; the thread's
  Periodic looks_;                                 // last: its thread uses the others
};

}  // namespace lunkeeper
