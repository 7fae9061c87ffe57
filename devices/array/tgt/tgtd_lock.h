#pragma once
// The proof that a tgtd serves a pool: a flock on a file in the pool, one for each of its tgtds, on a
// descriptor that only tgtd has. The kernel gives it up with the last thread of that tgtd and not before,
// whichever control port or portal the tgtd has, and whether or not anybody can still talk to it.
//
// Without it a second tgtd could serve the pool, and a fence, which drains one, would not stop the sessions
// of the other. Thread-safe.

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// An array has no more tgtds than this.
inline constexpr int kMostTgtds = 64;

// The file of the lock of tgtd `number` of the pool in this directory.
std::string TgtdLockPath(const std::string& pool, int number);

// FAILED_PRECONDITION: a tgtd runs whose lock was removed from this pool, as by a restore that leaves no file
// which the copy did not have. Nobody finds such a tgtd by its lock, and it may have volumes of the pool
// open.
absl::Status CheckLocksAreThere(const std::string& pool);

// A tgtd's own control port, as its command line has it, or an empty text.
std::string ReadControlPort(pid_t tgtd);

class TgtdLock {
 public:
  explicit TgtdLock(std::string path) : path_(std::move(path)) {}

  // What the next tgtd has to inherit. The caller closes its own copy soon. FAILED_PRECONDITION: a tgtd
  // serves the pool already; the message names it and says what to do.
  absl::StatusOr<UniqueFd> TakeLock() const;
  // The same for who tries often: nothing is looked up. Empty: it cannot be taken.
  UniqueFd TryLock() const;
  // The lock that `process` holds, which then both hold: it is free when both have given it up. `handle`: a
  // pidfd of that process. Empty: it does not hold the lock, or cannot be looked into from here.
  UniqueFd ShareLock(pid_t process, const UniqueFd& handle) const;
  // The process that holds it, or 0: none that can be seen from here.
  pid_t FindHolder() const;
  // FAILED_PRECONDITION: the tgtd that answers on our control port is not the one that serves the pool.
  absl::Status CheckHolder(pid_t tgtd, int control_port) const;

 private:
  UniqueFd OpenFile() const;
  bool HoldsLock(pid_t process) const { return !FindDescriptor(process).empty(); }
  std::string FindDescriptor(pid_t process) const;
  absl::Status DescribeHolder() const;

  const std::string path_;
};

}  // namespace lunkeeper
