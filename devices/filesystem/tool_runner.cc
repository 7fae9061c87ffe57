#include "devices/filesystem/tool_runner.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/filesystem/device_users.h"

namespace lunkeeper {
namespace {

// The path alone is not enough: another volume may have it by now.
std::string KeyOf(const std::string& device) {
  const std::string name = std::filesystem::path(device).filename();
  std::ifstream file(absl::StrCat("/sys/class/block/", name, "/diskseq"));
  std::string sequence;
  file >> sequence;
  return absl::StrCat(device, "#", sequence);
}

absl::Status StillAtWork(const std::string& program, const std::string& device) {
  return absl::AbortedError(absl::StrCat(program, " is still at work on ", device,
                                         ", and is left to finish; repeat the call, which waits for it"));
}

}  // namespace

std::shared_ptr<ToolRunner::Tool> ToolRunner::FindTool(const std::string& key) {
  absl::MutexLock lock(&mu_);
  const auto found = tools_.find(key);
  return found == tools_.end() ? nullptr : found->second;
}

// Results that nobody asked for: their devices have gone, and with them the volumes to other nodes.
void ToolRunner::ForgetGoneDevices() {
  absl::MutexLock lock(&mu_);
  std::erase_if(tools_, [](const auto& entry) {
    const auto& [key, tool] = entry;
    const bool in_use = tool.use_count() > 1;
    return !in_use && KeyOf(tool->argv.back()) != key && tool->command.WaitForEnd(absl::InfinitePast());
  });
}

void ToolRunner::ForgetTool(const std::string& key) {
  absl::MutexLock lock(&mu_);
  tools_.erase(key);
}

absl::StatusOr<CommandResult> ToolRunner::RunTool(const std::string& device,
                                                  const std::vector<std::string>& argv, absl::Time deadline) {
  RETURN_IF_ERROR(AwaitTool(device, deadline));
  const std::string key = KeyOf(device);
  std::shared_ptr<Tool> tool = FindTool(key);
  if (tool == nullptr || tool->argv != argv) {
    ForgetGoneDevices();
    // No tool of ours is at work there. One that an earlier process has started may be.
    RETURN_IF_ERROR(AwaitUnused(device, deadline));
    ASSIGN_OR_RETURN(DetachedCommand command, DetachedCommand::Start(argv));
    tool = std::make_shared<Tool>(Tool{argv, std::move(command)});
    absl::MutexLock lock(&mu_);
    tools_[key] = tool;
  }
  const std::optional<CommandResult> result = tool->command.WaitForEnd(deadline);
  if (!result) return StillAtWork(argv[0], device);
  ForgetTool(key);
  return *result;
}

bool ToolRunner::HasTool(const std::string& device, const std::vector<std::string>& argv) {
  const std::shared_ptr<Tool> tool = FindTool(KeyOf(device));
  return tool != nullptr && tool->argv == argv;
}

absl::Status ToolRunner::AwaitTool(const std::string& device, absl::Time deadline) {
  const std::shared_ptr<Tool> tool = FindTool(KeyOf(device));
  if (tool == nullptr || tool->command.WaitForEnd(deadline)) return absl::OkStatus();
  return StillAtWork(tool->argv[0], device);
}

}  // namespace lunkeeper
