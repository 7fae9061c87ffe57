// A call ends with its answer, with its time, or when the connection turns out to be dead: gRPC sets
// TCP_USER_TIMEOUT, and a kernel resets what a process that is gone had open.

#include "fencing/sim/replica_link.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kDeadConnection = 2500_ms, kCallRepeats = 3_s;
constexpr absl::Duration kNotices = absl::Milliseconds(500);

}  // namespace

void ReplicaLink::NoteIfOpen() const {
  const World& world = process_.world();
  if (to_.HasKernel() && world.Open(machine_.endpoint(), to_.endpoint()) &&
      world.Open(to_.endpoint(), machine_.endpoint()))
    open_at_ = world.now();
}

bool ReplicaLink::IsConnected() const {
  const bool refuses = to_.HasKernel() && !to_.running();
  return !refuses && open_at_ && process_.world().now() - *open_at_ < kDeadConnection;
}

void ReplicaLink::Send(World& world, Endpoint from, Replica& to, const std::shared_ptr<Exchange>& exchange,
                       const Question& question) {
  const auto answer = [&world, from, &to, exchange](const absl::Status& status, bool answered) {
    world.Send(to.endpoint(), from, [exchange, status, answered] {
      if (exchange->over) return;
      exchange->status = status;
      exchange->answered = answered;
      exchange->over = true;
      exchange->arrived->Set();
    });
  };
  world.Send(from, to.endpoint(), [&to, exchange, question, answer] {
    to.Serve(
        [exchange, question](NodeRequests& requests) {
          return question(requests, [exchange] { return exchange->over; });
        },
        answer);
  });
}

CallOutcome ReplicaLink::Ask(absl::Duration limit, const Question& question) const {
  const auto exchange = std::make_shared<Exchange>();
  exchange->arrived = process_.MakeSignal();
  if (process_.dead()) return {exchange->status};
  const std::string begun_with = to_.name();
  World& world = process_.world();
  const auto send = [&world, from = machine_.endpoint(), &to = to_, exchange, question] {
    Send(world, from, to, exchange, question);
  };
  send();
  if (world.IsRepeated()) world.After(world.random().Between(0_ms, kCallRepeats), send);
  const absl::Duration end = process_.SteadyNow() + limit;
  for (absl::Duration left = limit; left > absl::ZeroDuration() && !exchange->over;
       left = end - process_.SteadyNow()) {
    exchange->arrived->WaitFor(std::min(left, kNotices));
    if (exchange->over) break;
    if (process_.dead() || to_.name() != begun_with || (!IsConnected() && open_at_)) break;
  }
  exchange->over = true;
  return {exchange->status, exchange->answered};
}

CallOutcome ReplicaLink::AcquireGrant(const NodeId& node, const VolumeId& volume, const WantedUse& use,
                                      absl::Duration wait, absl::Duration limit,
                                      lunkeeper::Grant* grant) const {
  const auto given = std::make_shared<lunkeeper::Grant>();
  auto outcome = Ask(limit, [=](NodeRequests& requests, const auto& hung_up) -> absl::Status {
    GrantRequest wanted{.volume = volume, .node = node, .access = use.access, .mode = use.mode};
    wanted.abandoned = hung_up;
    ASSIGN_OR_RETURN(*given, requests.AcquireGrant(wanted, wait));
    return absl::OkStatus();
  });
  if (outcome.status.ok()) *grant = *given;
  return outcome;
}

CallOutcome ReplicaLink::ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation,
                                      absl::Duration limit) const {
  return Ask(limit, [=](NodeRequests& requests, const auto&) {
    return requests.ReleaseGrant(node, volume, generation);
  });
}

CallOutcome ReplicaLink::ListGrants(const NodeId& node, const VolumeId& volume, absl::Duration limit,
                                    std::vector<HeldGrant>* held) const {
  const auto found = std::make_shared<std::vector<HeldGrant>>();
  auto outcome = Ask(limit, [=](NodeRequests& requests, const auto&) -> absl::Status {
    ASSIGN_OR_RETURN(const auto grants, requests.ListGrants(node, volume));
    found->clear();
    for (const auto& grant : grants)
      found->push_back({grant.volume, grant.generation, grant.connection.target, grant.owner});
    return absl::OkStatus();
  });
  if (outcome.status.ok()) *held = *found;
  return outcome;
}

CallOutcome ReplicaLink::OpenHeartbeatLun(const NodeId& node, const std::string& array, absl::Duration limit,
                                          Connection* connection) const {
  const auto found = std::make_shared<Connection>();
  auto outcome = Ask(limit, [=](NodeRequests& requests, const auto&) -> absl::Status {
    ASSIGN_OR_RETURN(*found, requests.OpenHeartbeatLun(node, array, true));
    return absl::OkStatus();
  });
  if (outcome.status.ok()) *connection = *found;
  return outcome;
}

}  // namespace lunkeeper::fencing::sim
