// A reading is one Status of the server. On a terminal the table is drawn again after each interval until
// Ctrl-C, whose default action is all there is to do: nothing has to be restored. Elsewhere one table is
// printed, since nobody would end the command: `kubectl exec` without a terminal passes no signal on.
#include "plugin/top_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/units.h"
#include "plugin/admin_call.h"
#include "plugin/cluster_view.h"
#include "plugin/table.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using admin::v1::StatusResponse;

// What was counted of one volume on one node, from some moment on. `timed`: the times were counted as well.
struct IoCounted {
  uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
  bool timed = false;
  uint64_t read_microseconds = 0, write_microseconds = 0;
};

// By volume and node. What the data path has counted goes before what the array has: it has the times, too.
std::map<std::pair<std::string, std::string>, IoCounted> CountedIn(const StatusResponse& status) {
  std::map<std::pair<std::string, std::string>, IoCounted> counted;
  for (const auto& array : status.arrays())
    for (const auto& grant : array.grants())
      counted[{grant.volume(), grant.node()}] = {.reads = grant.reads(),
                                                 .writes = grant.writes(),
                                                 .read_bytes = grant.read_bytes(),
                                                 .written_bytes = grant.written_bytes()};
  for (const auto& device : status.devices()) {
    if (!device.has_io()) continue;
    const auto& io = device.io();
    counted[{device.volume(), status.node_id()}] = {.reads = io.reads(),
                                                    .writes = io.writes(),
                                                    .read_bytes = io.read_bytes(),
                                                    .written_bytes = io.written_bytes(),
                                                    .timed = true,
                                                    .read_microseconds = io.read_microseconds(),
                                                    .write_microseconds = io.write_microseconds()};
  }
  return counted;
}

IoRates RateOf(const IoCounted& before, const IoCounted& after, double seconds) {
  // A new grant or a new device counts from zero, and began after the last reading.
  const auto gained = [](uint64_t then, uint64_t now) {
    return static_cast<double>(now < then ? now : now - then);
  };
  const double reads = gained(before.reads, after.reads), writes = gained(before.writes, after.writes);
  IoRates rates;
  rates.reads = reads / seconds;
  rates.writes = writes / seconds;
  rates.read_bytes = gained(before.read_bytes, after.read_bytes) / seconds;
  rates.written_bytes = gained(before.written_bytes, after.written_bytes) / seconds;
  if (!before.timed || !after.timed) return rates;
  const double reading = gained(before.read_microseconds, after.read_microseconds);
  const double writing = gained(before.write_microseconds, after.write_microseconds);
  if (reads > 0) rates.read_milliseconds = reading / reads / 1000;
  if (writes > 0) rates.write_milliseconds = writing / writes / 1000;
  rates.in_flight = (reading + writing) / (seconds * 1e6);  // Little's law
  return rates;
}

// The arguments of `top`, and its surroundings.
struct TopCommand {
  AdminTarget target;
  bool once = false;
  int interval = 1, seconds = 0;  // 0: not given
  Output output = Output::kTable;
  MakeClient cluster;
};

absl::StatusOr<StatusResponse> ReadCounters(const TopCommand& command) {
  ASSIGN_OR_RETURN(auto status, (AskServer<admin::v1::StatusRequest, StatusResponse>(
                                    command.target, &Admin::Stub::Status, {})));
  // A node whose data path is gone shows no device. That is an error here, and not "no node has a volume".
  if (status.arrays().empty() && !status.not_ready().empty())
    return absl::UnavailableError(absl::StrCat("the node plugin is not ready: ", status.not_ready()));
  return status;
}

Cell DecimalCell(std::optional<double> value, double unit = 1) {
  return value ? Cell(absl::StrFormat("%.1f", *value / unit), *value) : Cell("-", nullptr);
}

// How many rows the terminal has room for.
size_t RowsThatFit() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4) return SIZE_MAX;
  return size.ws_row - 2;
}

void PrintRates(const TopCommand& command, const std::vector<IoRates>& rates, const NamesById& claims,
                size_t most) {
  Table table({{"VOLUME", "volume"},
               {"CLAIM", "claim"},
               {"NODE", "node"},
               {"READ/S", "reads_per_second"},
               {"WRITE/S", "writes_per_second"},
               {"READ MiB/S", "read_bytes_per_second"},
               {"WRITE MiB/S", "written_bytes_per_second"},
               {"READ MS", "read_milliseconds"},
               {"WRITE MS", "write_milliseconds"},
               {"QUEUE", "in_flight"}});
  for (size_t i = 0; i < std::min(most, rates.size()); ++i) {
    const IoRates& each = rates[i];
    const auto claim = claims.find(each.volume);
    table.AddRow({each.volume, OrDash(claim == claims.end() ? "" : claim->second), each.node,
                  DecimalCell(each.reads), DecimalCell(each.writes), DecimalCell(each.read_bytes, kMiB),
                  DecimalCell(each.written_bytes, kMiB), DecimalCell(each.read_milliseconds),
                  DecimalCell(each.write_milliseconds), DecimalCell(each.in_flight)});
  }
  if (table.empty() && command.output != Output::kJson) {
    std::cout << "no node has a volume\n";
  } else {
    table.Print(std::cout, command.output);
  }
  std::cout << std::flush;
}

absl::Status Top(const TopCommand& command) {
  const bool drawn = ::isatty(STDOUT_FILENO) == 1 && command.output == Output::kTable && !command.once;
  const SteadyDeadline end(absl::Seconds(command.seconds));
  const NamesById claims = ReadNamesOrWarn(command.cluster, ReadClaims, "claims", command.target);
  absl::Duration read_at = RealExecutor().SteadyNow();
  ASSIGN_OR_RETURN(StatusResponse before, ReadCounters(command));
  while (true) {
    absl::SleepFor(absl::Seconds(command.interval));
    const absl::Duration now = RealExecutor().SteadyNow();
    ASSIGN_OR_RETURN(StatusResponse after, ReadCounters(command));
    if (drawn) std::cout << "\x1b[H\x1b[J";  // to the upper left, and nothing below
    PrintRates(command, RatesBetween(before, after, now - read_at), claims, drawn ? RowsThatFit() : SIZE_MAX);
    // `--seconds` ends a drawn table too. Without it, and without a terminal, the first table is the last.
    const bool endless = command.seconds == 0 && drawn;
    if (command.once || (!endless && end.IsOver())) return CheckAllServe(after);
    before = std::move(after);
    read_at = now;
  }
}

}  // namespace

std::vector<IoRates> RatesBetween(const StatusResponse& before, const StatusResponse& after,
                                  absl::Duration elapsed) {
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);  // a clock may be set back
  const auto then = CountedIn(before);
  std::vector<IoRates> all;
  for (const auto& [key, counted] : CountedIn(after)) {
    const auto found = then.find(key);
    // New since the last reading. When it began is not known, so there is no rate yet.
    if (found == then.end()) continue;
    all.push_back(RateOf(found->second, counted, seconds));
    std::tie(all.back().volume, all.back().node) = key;
  }
  const auto business = [](const IoRates& each) {
    return std::pair(each.read_bytes + each.written_bytes, each.reads + each.writes);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const IoRates& a, const IoRates& b) { return business(a) > business(b); });
  return all;
}

void AddTopCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command = std::make_shared<TopCommand>();
  command->cluster = cluster;
  CLI::App* added = AddAdminCommand(
      app, "top", "Show which volumes are busy: of all nodes, or on a node with latencies", &command->target);
  added->add_flag("--once", command->once, "One table, and end: what happens without a terminal anyway");
  added->add_option("--seconds", command->seconds, "For so long, also without a terminal")
      ->check(CLI::Range(1, 86400));
  added->add_option("--interval", command->interval, "Seconds between two readings")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  const std::map<std::string, Output> outputs = {{"table", Output::kTable}, {"json", Output::kJson}};
  added->add_option("-o,--output", command->output, "table or json")
      ->transform(CLI::CheckedTransformer(outputs));
  added->callback([=] { *exit_code = ExitCode(Top(*command)); });
}

}  // namespace lunkeeper
