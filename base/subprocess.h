#pragma once
// Programs run with a limit on their time: the tools of a file system, on devices that may be dead.
//
// Thread-safe; each call blocks its thread until the program has ended or the deadline has passed. child.h
// says what happens at the deadline. Failure: as there, and NOT_FOUND (no such program).

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct CommandResult {
  int exit_code = 0;
  std::string output;  // the last 4 KiB of standard output and standard error together
};

// Runs argv[0], looked for in the usual directories, with nothing on standard input, in the C locale. Any
// exit code is a result, not a failure. The subject is the whole command line: put no secrets there.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv, absl::Time deadline);

// A program that must not be killed half-way, such as one that writes to a file system. It outlives its call,
// the thread that started it, this object and this process; nothing here ever sends it a signal. Its output
// goes to memory of its own, so that a reader who has gone neither stops nor kills it. Otherwise as
// RunCommand. Not thread-safe.
class DetachedCommand {
 public:
  static absl::StatusOr<DetachedCommand> Start(const std::vector<std::string>& argv);

  // nullopt: it still runs at the deadline. May be repeated, also after the end. A program that a signal has
  // ended has 128 and the signal's number as its exit code, as in a shell.
  std::optional<CommandResult> WaitForEnd(absl::Time deadline);

 private:
  pid_t pid_ = -1;
  UniqueFd handle_;  // a pidfd: readable when it has ended
  UniqueFd output_;  // a memfd
  std::optional<CommandResult> result_;
};

}  // namespace lunkeeper
