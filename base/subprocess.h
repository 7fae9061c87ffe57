#pragma once
// Programs run with a limit on their time: the tools of a file system, on devices that may be dead.
//
// Thread-safe; each call blocks its thread until the program has ended or the deadline has passed. child.h
// says what happens at the deadline. Failure: as there, and NOT_FOUND (no such program).

#include <string>
#include <vector>

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

}  // namespace lunkeeper
