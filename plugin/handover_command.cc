// The agent does all of it; the command shows how far it is. So an interrupted command interrupts nothing
// that the agent has begun. Last it looks for the next gateway's portal from here, as nodes do.
#include "plugin/handover_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/open_portal.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "plugin/admin_call.h"

namespace lunkeeper {
namespace {

using admin::v1::HandOverProgress;
using SteadyClock = std::chrono::steady_clock;

constexpr absl::Duration kPortalOpens = absl::Seconds(30);
constexpr absl::Duration kConnects = absl::Seconds(1);

const char* DescribeStep(HandOverProgress::Step step) {
  switch (step) {
    case HandOverProgress::BEGUN:
      return "a gateway stands by on ";
    case HandOverProgress::STOPPING:
      return "the portals close, and I/O waits";
    case HandOverProgress::STOPPED:
      return "the commands in hand are done, and tgtd has ended";
    case HandOverProgress::RELEASED:
      return "the array is given away";
    case HandOverProgress::TAKEN:
      return "the array is taken by ";
    default:
      return "a step of a newer agent";
  }
}

void PrintStep(const HandOverProgress& progress) {
  if (progress.trouble().empty())
    std::cout << DescribeStep(progress.step()) << progress.host() << std::endl;
  else
    std::cout << "not in order, which costs time and no data: " << progress.trouble() << std::endl;
}

// What a broken call means depends on how far it was.
absl::Status ExplainBreak(const AdminTarget& target, HandOverProgress::Step last,
                          const absl::Status& status) {
  if (last <= HandOverProgress::BEGUN && !absl::IsUnavailable(status)) return status;
  if (last == HandOverProgress::UNKNOWN)
    return absl::UnavailableError(absl::StrCat(
        status.message(), "; this command is for the gateway that serves the array, at its agent's socket (",
        target.endpoint, "): one that stands by has none"));
  return absl::UnavailableError(
      absl::StrCat("the agent has ended in the middle, and no data is lost: it goes on when it is started "
                   "again, or another "
                   "gateway takes the array within seconds; see which one serves, and repeat the command "
                   "there if need be (",
                   status.message(), ")"));
}

// Where the portals are not known, it is taken for done.
absl::Status AwaitPortal(const HandOverProgress& taken, SteadyClock::time_point stopped) {
  const std::vector<std::string> portals(taken.peer_portals().begin(), taken.peer_portals().end());
  const SteadyDeadline deadline(kPortalOpens);
  while (!portals.empty() && !deadline.IsOver()) {
    if (const auto portal = FindOpenPortal(portals, kConnects)) {
      std::cout << *portal
                << absl::StrFormat(" is open, and I/O goes on there: it stood for %.1f s\n",
                                   absl::ToDoubleSeconds(absl::FromChrono(SteadyClock::now() - stopped)));
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  if (portals.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(taken.host(),
                   " has the array, and none of the portals that this agent knows of other gateways "
                   "(--peer-portal) can be reached from here; see the log of the agent there"));
}

absl::Status HandOver(const AdminTarget& target) {
  const auto stub = ConnectToServer(target);
  grpc::ClientContext context;
  const auto reader = stub->HandOver(&context, {});
  HandOverProgress progress;
  auto stopped = SteadyClock::now();
  while (progress.step() != HandOverProgress::TAKEN && reader->Read(&progress)) {
    if (progress.step() == HandOverProgress::STOPPING) stopped = SteadyClock::now();
    PrintStep(progress);
  }
  if (progress.step() != HandOverProgress::TAKEN)
    return ExplainBreak(target, progress.step(), FromGrpcStatus(reader->Finish()));
  context.TryCancel();  // the agent waits for that, and ends
  reader->Finish();
  if (!progress.trouble().empty())
    return absl::UnavailableError(
        "no gateway has taken the array: this host's takes it again when it is started");
  return AwaitPortal(progress, stopped);
}

}  // namespace

void AddHandoverCommand(CLI::App* array, int* exit_code) {
  CLI::App* command = array->add_subcommand(
      "handover", "Move the array of this host's running agent to another gateway, which stands by");
  const auto target = std::make_shared<AdminTarget>();
  AddAdminEndpoint(command, target.get());
  command->preparse_callback([array](size_t) {
    for (CLI::Option* option : array->get_options()) option->required(false);
  });
  command->callback([=] { *exit_code = ExitCode(HandOver(*target)); });
}

}  // namespace lunkeeper
