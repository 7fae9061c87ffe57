// The command line of `lunkeeper datapath`, and the way in which a plugin starts one beside itself.
// RunDatapath is three programs: the supervisor (no subcommand), its worker (--worker-socket, which only the
// supervisor passes), and a client of a running one (list, upgrade, stop).

#include "devices/datapath/datapath.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/units.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/locked_memory.h"
#include "devices/datapath/succession.h"
#include "devices/datapath/user_initiator.h"
#include "devices/datapath/worker.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
constexpr char kLogLevel[] = "LUNKEEPER_LOG_LEVEL", kLogFormat[] = "LUNKEEPER_LOG_FORMAT";

// One option of type absl::Duration, in seconds.
void AddSeconds(CLI::App* command, const std::string& name, absl::Duration* value, const std::string& help) {
  command
      ->add_option_function<double>(
          name, [value](const double& seconds) { *value = absl::Seconds(seconds); }, help)
      ->check(CLI::Range(0.1, 86400.0))
      ->type_name("SECONDS");
}

std::vector<std::string> CommandLine(const DatapathOptions& options) {
  std::vector<std::string> line = {
      "lunkeeper",
      "datapath",
      absl::StrCat("--socket=", options.socket),
      absl::StrCat("--pool-mib=", options.pool_bytes / kMiB),
      absl::StrCat("--threads=", options.threads),
      absl::StrCat("--replacement-timeout=", absl::ToDoubleSeconds(options.replacement_timeout)),
      absl::StrCat("--hang-timeout=", absl::ToDoubleSeconds(options.hang_timeout)),
  };
  if (!options.worker_binary.empty()) line.push_back(absl::StrCat("--worker-binary=", options.worker_binary));
  return line;
}

// A grandchild in a session of its own, so that nobody but init has to collect it.
absl::Status StartDetached(const DatapathOptions& options) {
  std::vector<std::string> line = CommandLine(options);
  std::vector<char*> arguments;
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "starting the data path");
  if (child == 0) {
    // A session of its own: a signal to the plugin's process group must not reach the data path.
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    // The plugin has connections by now that must not stay open when it ends.
    ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  ::waitpid(child, nullptr, 0);
  return absl::OkStatus();
}

absl::Status ListDevices(const std::string& socket) {
  ASSIGN_OR_RETURN(const std::vector<Device> devices, MakeUserInitiator(socket)->List());
  for (const Device& device : devices) {
    std::cout << device.volume.value() << ' ' << device.path << ' ' << device.size_bytes / kMiB << " MiB "
              << (device.read_only ? "read-only " : "") << ToString(device.health)
              << (device.reason.empty() ? "" : ": ") << device.reason << '\n';
  }
  return absl::OkStatus();
}

int ReportStatus(const absl::Status& status) {
  if (!status.ok()) std::cerr << "lunkeeper: " << std::string(status.message()) << '\n';
  return status.ok() ? 0 : 1;
}

// A worker has no options, so that it may be any version of the program: it finds them in its environment.
void StartLogging(const DatapathOptions& options) {
  ::setenv(kLogLevel, options.log_level.c_str(), 1);
  ::setenv(kLogFormat, options.log_format.c_str(), 1);
  SetUpLogging(options.log_level, options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
}

int RunSupervisor(const DatapathOptions& options) {
  LockMemory();  // secrets must not reach a swap device, and a worker's death must not wait for memory
  const absl::Status ended = ServeInTurn(options);
  if (!ended.ok()) LogError("datapath", "cannot serve", {{"error", ended.ToString()}});
  return ended.ok() ? 0 : 1;
}

}  // namespace

void AddDatapathOptions(CLI::App* command, DatapathOptions* options) {
  command->add_option("--socket", options->socket, "The control socket")->capture_default_str();
  command
      ->add_option_function<uint64_t>(
          "--pool-mib", [options](const uint64_t& mib) { options->pool_bytes = mib * kMiB; },
          "Locked memory for data under way, in MiB (64)")
      ->check(CLI::Range(8, 65536));
  command->add_option("--threads", options->threads, "Event loops; 0: half of the processors, 1 to 4")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  AddSeconds(command, "--replacement-timeout", &options->replacement_timeout,
             "A target that is away longer fails its volumes for good (120)");
  AddSeconds(command, "--hang-timeout", &options->hang_timeout,
             "A worker that is silent longer is replaced (10); on a kernel before 6.9 after 120");
  command->add_option("--worker-binary", options->worker_binary,
                      "The program that an upgrade starts (default: this one's path)");
  command->add_flag("--take-over", options->take_over,
                    "Take the volumes of the data path that serves at the socket, under running I/O");
  command->add_option("--ready-file", options->ready_file,
                      "A file that is there while this data path serves");
  command->add_option("--log-level", options->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->envname(kLogLevel)
      ->capture_default_str();
  command->add_option("--log-format", options->log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->envname(kLogFormat)
      ->capture_default_str();
  command->add_flag("--resend,!--no-resend", options->resend)->group("");
  command->add_option("--worker-socket", options->worker_socket)->group("");
  const auto add = [&](const std::string& name, const std::string& help, DatapathCommand what) {
    command->add_subcommand(name, help)->fallthrough()->callback([=] { options->command = what; });
  };
  add("list", "Print the volumes of the running data path", DatapathCommand::kList);
  add("upgrade", "Put the program now installed in the place of the running worker, under running volumes",
      DatapathCommand::kUpgrade);
  add("ready", "Whether the data path with this --ready-file serves: the exit code says",
      DatapathCommand::kReady);
  add("stop", "End the running data path, if no volume is attached", DatapathCommand::kStop);
}

int RunDatapath(const DatapathOptions& options) {
  // Where the reader of the log has gone, its next line must not end all I/O.
  ::signal(SIGPIPE, SIG_IGN);
  StartLogging(options);
  if (options.worker_socket >= 0) return RunWorker(options.worker_socket);
  switch (options.command) {
    case DatapathCommand::kList:
      return ReportStatus(ListDevices(options.socket));
    case DatapathCommand::kUpgrade:
      return ReportStatus(UpgradeDatapath(options.socket));
    case DatapathCommand::kStop:
      return ReportStatus(StopDatapath(options.socket));
    case DatapathCommand::kReady:
      return ::access(options.ready_file.c_str(), F_OK) == 0 ? 0 : 1;
    case DatapathCommand::kRun:
      break;
  }
  return RunSupervisor(options);
}

// Of several that are started at once one gets the socket, and the others end.
absl::Status StartDatapathIfAbsent(const DatapathOptions& options, absl::Duration timeout) {
  if (ConnectTo(options.socket).ok()) return absl::OkStatus();
  RETURN_IF_ERROR(StartDetached(options));
  const SteadyDeadline deadline(timeout);
  absl::Status connected = ConnectTo(options.socket).status();
  while (!connected.ok() && !deadline.IsOver()) {
    absl::SleepFor(kLookAgain);
    connected = ConnectTo(options.socket).status();
  }
  return connected;
}

// One that ends in good order removes its socket before it stops listening.
bool IsDatapathKilled(const std::string& socket_path) {
  return ::access(socket_path.c_str(), F_OK) == 0 && !ConnectTo(socket_path).ok();
}

}  // namespace lunkeeper
