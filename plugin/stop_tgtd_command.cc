// Runs on the storage host itself and asks no server: the agent is stopped when this is wanted.
#include "plugin/stop_tgtd_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "absl/time/time.h"
#include "devices/array/tgt/stop_tgtd.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLongest = absl::Seconds(30);

int RunStopTgtd(const StopTgtdRequest& request) {
  const absl::Status status = StopPoolTgtd(request, kLongest);
  if (!status.ok()) {
    std::cerr << "error: " << status.message() << '\n';
    return 1;
  }
  std::cout << "no tgtd serves " << request.pool_dir << "; its file system can be unmounted\n";
  return 0;
}

}  // namespace

void AddStopTgtdCommand(CLI::App* app, int* exit_code) {
  CLI::App* command =
      app->add_subcommand("stop-tgtd", "End the tgtd of a pool on this machine whose agent is stopped");
  const auto request = std::make_shared<StopTgtdRequest>();
  command->add_option("--pool", request->pool_dir, "The array's directory")->required();
  command->add_flag("--with-sessions", request->with_sessions,
                    "Also while nodes use its volumes; their I/O waits then, and may fail");
  command->callback([=] { *exit_code = RunStopTgtd(*request); });
}

}  // namespace lunkeeper
