#pragma once
// Work done in another process with a limit on its time: the tools of a file system, and system calls that a
// dead device can hold up for ever.
//
// Thread-safe; each call blocks its thread until the child has ended or the deadline has passed. At the
// deadline the child's whole process group is killed. A child that the kernel will not let go (it waits for a
// dead device) is left behind, to be collected by a later call; until then a call with the same subject is
// refused at once, so that repetition heaps up nothing. The child dies with the caller's process. Failure:
// DEADLINE_EXCEEDED, NOT_FOUND (no such program), RESOURCE_EXHAUSTED (fork), INTERNAL (killed by a signal).

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct CommandResult {
  int exit_code = 0;
  std::string output;  // the last 4 KiB of standard output and standard error together
};

// Runs argv[0], looked for in the usual directories, with nothing on standard input, in the C locale. Any
// exit code is a result, not a failure. The subject is the whole command line: put no secrets there.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv, absl::Time deadline);

// Runs `work` in a fork of this process and returns what it wrote to `out` (at most 4 KiB). It returns 0 or
// an errno, which comes back as the status, and may only make system calls: the child has one thread, and
// locks of the others may be held for ever. Of the caller's descriptors it has only `keep`, so that a child
// left behind holds on to nothing. `subject` is what the call is about, for the error and to tell
// repetitions: "mount of /a".
absl::StatusOr<std::string> CallInChild(const std::string& subject, const std::function<int(int out)>& work,
                                        absl::Time deadline, int keep = -1);

}  // namespace lunkeeper
