// `remove-array` is two steps: the controller stores the removal, which is what counts, and then the command
// looks twice a second at what nodes report, prints each device that is gone, and ends with the last one.
// Killed in the second step it leaves the removal as it is. What silent nodes may have cannot be waited for,
// and is named instead.
#include "plugin/removal_command.h"

#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "plugin/admin_call.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using admin::v1::ArrayUses;
using admin::v1::VolumeUse;

constexpr absl::Duration kFollowEvery = absl::Milliseconds(500);

struct RemovalCommand {
  AdminTarget target;
  std::string array;
  bool force = false;
};

using Place = std::pair<std::string, std::string>;  // volume and node

std::string DescribePlace(const Place& place) {
  return absl::StrCat("volume ", place.first, " on node ", place.second);
}

// What nodes whose heartbeats arrive have attached.
std::set<Place> AttachedPlaces(const ArrayUses& uses) {
  std::set<Place> places;
  for (const VolumeUse& use : uses.uses())
    if (use.has_device() && !use.node_is_silent()) places.emplace(use.volume(), use.node());
  return places;
}

// What silent nodes may have, whatever is known of their devices: a controller that has just started knows
// none.
std::set<Place> SilentPlaces(const ArrayUses& uses) {
  std::set<Place> places;
  for (const VolumeUse& use : uses.uses())
    if (use.node_is_silent()) places.emplace(use.volume(), use.node());
  return places;
}

absl::StatusOr<ArrayUses> ListUses(const RemovalCommand& command) {
  admin::v1::ListArrayUsesRequest request;
  request.set_array(command.array);
  return AskServer<admin::v1::ListArrayUsesRequest, ArrayUses>(command.target, &Admin::Stub::ListArrayUses,
                                                               request);
}

// What a node still has when the time is over. The node itself says whether its I/O has ended.
absl::Status DescribeLeft(const std::string& array, const ArrayUses& uses) {
  std::vector<std::string> left;
  bool goes_on = false;
  for (const VolumeUse& use : uses.uses()) {
    if (!use.has_device() || use.node_is_silent()) continue;
    left.push_back(absl::StrCat(DescribePlace({use.volume(), use.node()}),
                                use.io_ended() ? ", whose I/O has ended" : ", WHOSE I/O GOES ON"));
    goes_on = goes_on || !use.io_ended();
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "array ", array, " is removed, but not everything is detached yet: ", absl::StrJoin(left, "; "),
      goes_on ? ". Where I/O goes on, the node's plugin is of an older version, or its data path does not "
                "answer: upgrade the plugin or end the pods, and until then count on writes to the array"
              : "",
      ". Pods that still use it have to end; --force deletes them. Repeat the command to go on waiting"));
}

// Until nothing is left on nodes whose heartbeats arrive. Returns what silent ones may have.
absl::StatusOr<std::set<Place>> FollowRemoval(const RemovalCommand& command) {
  const SteadyDeadline deadline(absl::Seconds(command.target.timeout_seconds));
  std::set<Place> before;
  for (;;) {
    ASSIGN_OR_RETURN(const ArrayUses uses, ListUses(command));
    const std::set<Place> left = AttachedPlaces(uses);
    for (const Place& place : before)
      if (!left.contains(place)) std::cout << DescribePlace(place) << ": detached" << std::endl;
    if (left.empty()) return SilentPlaces(uses);
    if (deadline.left() <= kFollowEvery) return DescribeLeft(command.array, uses);
    before = left;
    absl::SleepFor(kFollowEvery);
  }
}

void PrintUses(const ArrayUses& uses) {
  for (const VolumeUse& use : uses.uses())
    std::cout << DescribePlace({use.volume(), use.node()})
              << (use.pods().empty() ? "" : ", used by " + absl::StrJoin(use.pods(), ", ")) << std::endl;
}

absl::Status RemoveArray(const RemovalCommand& command) {
  admin::v1::RemoveArrayRequest request;
  request.set_array(command.array);
  request.set_force(command.force);
  ASSIGN_OR_RETURN(const ArrayUses uses, (AskServer<admin::v1::RemoveArrayRequest, ArrayUses>(
                                             command.target, &Admin::Stub::RemoveArray, request)));
  std::cout << "array " << command.array
            << " is removed: nothing of it is used any more until `lunkeeper add-array " << command.array
            << "`" << std::endl;
  PrintUses(uses);
  ASSIGN_OR_RETURN(const std::set<Place> away, FollowRemoval(command));
  for (const Place& place : away)
    std::cout << DescribePlace(place) << ": the node is silent; it ends the I/O when it is back" << std::endl;
  std::cout << "no node whose heartbeats arrive has anything of it left. Its PersistentVolumes and claims "
               "stay until "
               "they are deleted, and its data stay on it"
            << std::endl;
  return absl::OkStatus();
}

void AddArrayName(CLI::App* command, std::string* array) {
  command->add_option("array", *array, "The array's name, as `lunkeeper arrays` shows it")->required();
}

}  // namespace

void AddRemovalCommands(CLI::App* app, int* exit_code) {
  const auto removal = std::make_shared<RemovalCommand>();
  CLI::App* remove = AddAdminCommand(
      app, "remove-array", "Stop using an array, also one that hangs or is gone for good", &removal->target);
  AddArrayName(remove, &removal->array);
  remove->add_flag("--force", removal->force,
                   "Also while its volumes are used: their I/O ends for good, and the pods that use them "
                   "are deleted");
  remove->callback([=] { *exit_code = ExitCode(RemoveArray(*removal)); });

  const auto addition = std::make_shared<RemovalCommand>();
  CLI::App* add = AddAdminCommand(app, "add-array", "Use an array again that was removed with `remove-array`",
                                  &addition->target);
  AddArrayName(add, &addition->array);
  add->callback([=] {
    admin::v1::AddArrayRequest request;
    request.set_array(addition->array);
    *exit_code = CallServer<admin::v1::AddArrayRequest, admin::v1::AddArrayResponse>(
        addition->target, &Admin::Stub::AddArray, request, [&](const admin::v1::AddArrayResponse&) {
          std::cout << "array " << addition->array << " is used again\n";
        });
  });
}

}  // namespace lunkeeper
