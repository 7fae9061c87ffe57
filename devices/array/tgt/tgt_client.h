#pragma once
// Speaks to one tgtd over its management socket. One connection a call, as the daemon wants it, and none
// without a whole request, on which it may turn for ever; no process, no thread.
//
// Thread-safe: holds no state but where the socket is and whose answers it takes. Every call ends within the
// timeout. Failure: UNAVAILABLE the daemon does not answer, or another one does; NOT_FOUND there is no such
// target, connection, rule or account; ALREADY_EXISTS it is there; FAILED_PRECONDITION it is in use; INTERNAL
// anything else the daemon says no to. Secrets are sent and never repeated in an error.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/tgt_text.h"
#include "devices/types.h"

namespace lunkeeper {

inline constexpr int32_t kDiscovery = -1;  // instead of a target: the sessions that ask which there are

struct TgtLun {
  LunBacking backing;
  bool sync = false;
};

class TgtClient {
 public:
  explicit TgtClient(int control_port, absl::Duration timeout = absl::Seconds(5));

  // Who answers: the daemon's process, whichever it is.
  absl::StatusOr<pid_t> FindProcess() const;
  // From now on all other calls are for this process. The socket is found by a name, which another array's
  // tgtd may take after a death. "No such target" from that one would pass for the proof of a fence, and its
  // targets have the same numbers.
  void TalkOnlyTo(pid_t process) { process_ = process; }

  absl::Status NewTarget(int32_t target, const Iqn& name) const;
  absl::Status SetTargetParameter(int32_t target, const char* name, const char* value) const;
  absl::Status DeleteTarget(int32_t target) const;
  absl::StatusOr<std::vector<TgtTarget>> ListTargets() const;

  // The target's LUN 1.
  absl::Status NewLun(int32_t target, const TgtLun& lun) const;
  // Its image is closed then. FAILED_PRECONDITION: a command of it runs.
  absl::Status DeleteLun(int32_t target) const;
  // Parameters as `name=value,…`, applied in this order with no command of an initiator in between.
  absl::Status UpdateLun(int32_t target, const std::string& parameters) const;

  absl::Status NewAccount(const ChapCredentials& account) const;
  // By which initiators prove themselves to the target, or before they may ask for targets (kDiscovery).
  absl::Status BindAccount(int32_t target, const std::string& user) const;
  // By which the target proves itself to them; it has one.
  absl::Status BindTargetAccount(int32_t target, const std::string& user) const;
  // The users of all accounts.
  absl::StatusOr<std::vector<std::string>> ListAccounts() const;
  absl::Status DeleteAccount(const std::string& user) const;
  absl::Status AllowInitiator(int32_t target, const Iqn& initiator) const;
  absl::Status DisallowInitiator(int32_t target, const Iqn& initiator) const;

  absl::StatusOr<std::vector<TgtConnection>> ListConnections(int32_t target) const;
  // Returns while commands of the connection may still be running: it stays listed until they are over.
  absl::Status DeleteConnection(int32_t target, const TgtConnection& connection) const;
  // Of every session there is. Waits for the answer no longer than `most`, nor than any call does.
  absl::StatusOr<std::vector<TgtStatistics>> ReadStatistics(
      absl::Duration most = absl::InfiniteDuration()) const;

  absl::StatusOr<std::vector<std::string>> ListPortals() const;
  absl::Status OpenPortal(const std::string& portal) const;
  absl::Status ClosePortal(const std::string& portal) const;

 private:
  struct Request;
  static absl::StatusOr<std::string> Exchange(const std::string& doing, int fd, Request request,
                                              const std::string& text, SteadyDeadline deadline);
  static void SendWholeRequest(int fd, SteadyDeadline deadline);
  // UNAVAILABLE: another process listens than TalkOnlyTo has named.
  absl::Status CheckListener(const std::string& doing, int fd, SteadyDeadline deadline) const;
  absl::StatusOr<std::string> CallTgtd(const std::string& doing, Request request,
                                       const std::string& text = "",
                                       absl::Duration most = absl::InfiniteDuration()) const;
  absl::Status RunCommand(const std::string& doing, Request request, const std::string& text = "") const;

  const std::string path_;
  const absl::Duration timeout_;
  std::atomic<pid_t> process_{0};  // 0: any
};

// For a step that may have been done before: what tgtd has already, or no longer has, is success.
inline absl::Status OkIfThere(const absl::Status& status) {
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}
inline absl::Status OkIfGone(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace lunkeeper
