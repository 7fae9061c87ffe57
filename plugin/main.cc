// `lunkeeper`: the command line, and nothing else. One program has all roles, so that a host needs one file
// of one version. The administrator's commands run inside app.parse(); servers run after it, when all options
// have been checked. The exit code is 0, 1 for a failure, or 2 for a wrong command line.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "base/fail_point.h"
#include "devices/datapath/datapath.h"
#include "plugin/admin_client.h"
#include "plugin/array_agent.h"
#include "plugin/backup_command.h"
#include "plugin/handover_command.h"
#include "plugin/join.h"
#include "plugin/options.h"
#include "plugin/pki_command.h"
#include "plugin/serve.h"
#include "plugin/stop_tgtd_command.h"
#include "plugin/wiring.h"

namespace lunkeeper {
namespace {

// What the command line asks for. The administrator's commands have run when this returns, with their exit
// code for an answer; a server runs when the answer is called. By then the parser is gone with its hundreds
// of options, whose memory a server would otherwise keep for as long as it lives.
std::function<int()> ReadCommandLine(int argc, char** argv) {
  CLI::App app("Lunkeeper: a CSI driver for iSCSI block storage");
  app.require_subcommand(1);
  int exit_code = 0;

  const auto serve_options = std::make_shared<ServeOptions>();
  CLI::App* serve = app.add_subcommand("serve", "Serve CSI on a unix socket");
  AddServeOptions(serve, serve_options.get());
  const auto array_options = std::make_shared<ArrayAgentOptions>();
  CLI::App* array = app.add_subcommand("array", "Serve this machine's array to controllers elsewhere");
  AddArrayOptions(array, array_options.get());
  AddHandoverCommand(array, &exit_code);
  const auto datapath_options = std::make_shared<DatapathOptions>();
  CLI::App* datapath = app.add_subcommand("datapath", "Run the user-space iSCSI data path of this machine");
  AddDatapathOptions(datapath, datapath_options.get());
  AddAdminCommands(&app, &exit_code);
  AddPkiCommand(&app, &exit_code);
  AddJoinCommand(&app, &exit_code);
  AddStopTgtdCommand(&app, &exit_code);
  AddBackupCommand(&app, &exit_code);
  app.add_subcommand("version", "Print the version")->callback([] {
    std::cout << LUNKEEPER_VERSION << '\n';
  });
  app.add_subcommand("fail-points", "Print the places where a fault test can let this program die")
      ->callback([] {
        for (const std::string& name : FailPointNames()) std::cout << name << '\n';
      });

  // CLI11 reports by exceptions; they end here.
  try {
    app.parse(argc, argv);
    if (*serve) {
      if (const absl::Status complete = CheckComplete(*serve_options); !complete.ok()) {
        throw CLI::ValidationError(std::string(complete.message()));
      }
    }
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;  // --help is no mistake
    return [exit_code] { return exit_code; };
  }
  const bool is_agent = *array && array->get_subcommands().empty();
  // Servers: a log whose reader is gone, or a connection that ends while it is written to, ends nobody.
  // Programs that they start have it as usual (base/subprocess.h).
  if (*serve || is_agent || *datapath) ::signal(SIGPIPE, SIG_IGN);
  if (*serve)
    return [options = serve_options] { return Serve(*options, [&] { return OpenBackends(*options); }); };
  if (is_agent) return [options = array_options] { return RunArrayAgent(*options); };
  if (*datapath) return [options = datapath_options] { return RunDatapath(*options); };
  return [exit_code] { return exit_code; };
}

}  // namespace
}  // namespace lunkeeper

// Debian's Abseil checks the order in which mutexes are taken: it ends the program where two orders might
// one day meet, and takes a lock of the whole process with each mutex. That is for tests, which keep it.
int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return lunkeeper::ReadCommandLine(argc, argv)();
}
