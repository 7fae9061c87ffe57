#pragma once
// Runs the tools that write to an unmounted file system, and never kills one: e2fsck or resize2fs that is
// killed half-way can leave what only a person repairs. A call whose deadline passes leaves the tool at work
// and says so; a later call for the same device finds it, or its result.
//
// That memory is this process's. A tool that outlives it is recognised by having its device open exclusively
// (O_EXCL), as all these tools do (device_users.h). In a container, the end of the first process ends the
// tools as well: growth_record.h is for that.
//
// Thread-safe; one caller at a time for each device. Failure, beyond what DetachedCommand says:
//   ABORTED              a tool is still at work on the device; repeat the call
//   FAILED_PRECONDITION  something else keeps the device in use
// A later device of the same path has another number from the kernel (diskseq, Linux 5.15).

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/subprocess.h"

namespace lunkeeper {

class ToolRunner {
 public:
  // The result of this tool with these arguments: of the one that an earlier call has left at work, or of a
  // new one. An earlier tool with other arguments is waited for first. The device is the last argument.
  absl::StatusOr<CommandResult> RunTool(const std::string& device, const std::vector<std::string>& argv,
                                        absl::Time deadline);
  // Until no tool of an earlier call is at work on the device. Its result stays for RunTool.
  absl::Status AwaitTool(const std::string& device, absl::Time deadline);
  // Whether a tool with these arguments is at work, or has ended and nobody has its result yet.
  bool HasTool(const std::string& device, const std::vector<std::string>& argv);

 private:
  struct Tool {
    std::vector<std::string> argv;
    DetachedCommand command;
  };

  std::shared_ptr<Tool> FindTool(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetGoneDevices() ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetTool(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<Tool>> tools_ ABSL_GUARDED_BY(mu_);  // by device and diskseq
};

}  // namespace lunkeeper
