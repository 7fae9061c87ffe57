#pragma once
// Work done in a forked child with a limit on its time: for system calls that a dead device, or a dead reader
// of FUSE requests, can hold up for ever.
//
// Thread-safe; each call blocks its thread until the child has ended or the deadline has passed. At the
// deadline the child's whole process group is killed. A child that the kernel does not let go (it waits for a
// dead device) is left behind and collected by a later call or CollectLateChildren. The child dies with the
// thread that made it. Failure: DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (fork), INTERNAL (killed by a signal).
//
// A process must not wait itself for I/O of a FUSE device whose descriptor it holds: while it waits it cannot
// be killed, and while it lives the descriptor stays open and the I/O does not end. A child that has none of
// the caller's descriptors can be killed, and its parent too.

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct ChildCall {
  std::string subject;  // what the call is about, for errors and to tell repetitions: "mount of /a"
  absl::Time deadline;
  int lent = -1;  // a descriptor of the caller that the child also has, under the same number
  // Likewise, but this process closes its own copy as soon as the child runs: then the child's is the last
  // one.
  UniqueFd given = {};
  // While a child of the same subject is left behind, refuse at once: so repetition heaps up nothing. False
  // where the next call is the one that ends the earlier one's waiting.
  bool refuse_repeats = true;
};

struct ChildAnswer {
  std::string output;  // what the work wrote to `out`, the last 4 KiB of it
  UniqueFd passed;     // the descriptor that it sent by SendWithDescriptor
};

// Runs `work` in a fork of this process. It returns 0 or an errno, which comes back as the status. It may
// only make system calls: the child has one thread, and locks of the others may be held for ever. Of the
// caller's descriptors it has the standard streams and those of `call`, so that a child left behind holds on
// to nothing.
absl::StatusOr<ChildAnswer> CallInChild(ChildCall call, const std::function<int(int out)>& work);

// In the child: writes to `out` and passes a descriptor along, -1 for none. Returns 0 or an errno.
int SendWithDescriptor(int out, const void* data, size_t size, int fd);

struct ChildEnd {
  int exit_code = 0;
  ChildAnswer answer;
};

// What `out` is in the child: programs that are executed may open /dev/stdout again, which a socket refuses;
// a descriptor can be passed through a socket only.
enum class ChildOutput { kPipe, kSocket };

// The common part of CallInChild and RunCommand (subprocess.h): any exit code is a result. `work` starts with
// all of the caller's descriptors.
absl::StatusOr<ChildEnd> RunChild(ChildCall call, ChildOutput kind, const std::function<int(int out)>& work);

// Whether a child of that subject was left behind and has not ended since.
bool IsLeftBehind(const std::string& subject);

// Collects the children that were left behind and have ended since.
void CollectLateChildren();

}  // namespace lunkeeper
