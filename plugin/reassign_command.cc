// The agent does all of it in one call, and the command shows what came of it. The default timeout is that of
// a fence. If it is over first, the agent goes on all the same, and a repeated command says how it ended.
#include "plugin/reassign_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "plugin/admin_call.h"
#include "plugin/option_checks.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using admin::v1::ReassignRequest;
using admin::v1::ReassignResponse;

void PrintReassigned(const ReassignRequest& request, const ReassignResponse& done) {
  const bool planned = request.dry_run();
  for (const std::string& node : done.fenced_nodes())
    std::cout << "node " << node << " of cluster " << request.from_cluster()
              << (planned ? " would be fenced\n" : " is fenced\n");
  std::cout << done.volumes() << " volumes, " << done.snapshots() << " snapshots and " << done.groups()
            << " groups of snapshots (" << done.size_bytes() / kMiB << " MiB) of cluster "
            << request.from_cluster() << (planned ? " would be given to" : " are now those of") << " cluster "
            << request.to_cluster() << '\n';
}

}  // namespace

void AddReassignCommand(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<AdminTarget>();
  const auto request = std::make_shared<ReassignRequest>();
  const auto from = std::make_shared<std::string>(), to = std::make_shared<std::string>();
  const auto end_grants = std::make_shared<bool>(false), dry_run = std::make_shared<bool>(false);
  CLI::App* command =
      AddAdminCommand(app, "reassign",
                      "Give all that a cluster has of this process's array to another cluster", target.get());
  command->add_option("--from", *from, "The cluster that has the volumes; it must not run any more")
      ->required()
      ->check(PlainName(63));
  command->add_option("--to", *to, "The cluster that gets them, by its name in the chart's values")
      ->required()
      ->check(PlainName(63));
  command->add_flag("--fence", *end_grants,
                    "Fence the nodes that still have volumes of --from: their pods lose them");
  command->add_flag("--dry-run", *dry_run, "Say what would be done, or what forbids it, and do nothing");
  command->callback([=] {
    request->set_from_cluster(*from);
    request->set_to_cluster(*to);
    request->set_end_grants(*end_grants);
    request->set_dry_run(*dry_run);
    *exit_code = CallServer<ReassignRequest, ReassignResponse>(
        *target, &Admin::Stub::Reassign, *request,
        [=](const ReassignResponse& done) { PrintReassigned(*request, done); });
  });
}

}  // namespace lunkeeper
