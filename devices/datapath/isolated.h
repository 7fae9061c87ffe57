#pragma once
// Runs a few system calls in a child process that has no file descriptors but those it is given. For calls
// that wait on FUSE: whoever waits there cannot be killed while the requests' reader is alive or its
// descriptor open, so a process that has that descriptor must never wait itself. The child dies with the
// thread that made it.
//
// Thread-safe. The function runs after fork() in a program with threads: system calls only, no memory, no
// locks.

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct IsolatedResult {
  int error = 0;       // errno of the step that failed
  char step[48] = {};  // which one; what was being done
  int number = 0;      // the function's own
  int fd = -1;         // a descriptor to hand to the parent
};

// `function` is called in the child with `given` and `lent` (either may be none: -1) as its only descriptors.
// `given` is the child's alone from then on: this process closes its copy. `fd`, if not null, receives
// IsolatedResult::fd. DEADLINE_EXCEEDED: the child was killed, which takes effect as soon as what it waits
// for ends.
using IsolatedFunction = std::function<void(int given, int lent, IsolatedResult* result)>;
absl::StatusOr<IsolatedResult> RunIsolated(UniqueFd given, int lent, absl::Time deadline,
                                           const IsolatedFunction& function, UniqueFd* fd = nullptr);

// Collects children that were killed late. To be called now and then.
void ReapIsolated();

}  // namespace lunkeeper
