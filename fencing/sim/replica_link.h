#pragma once
// A connection of a machine's plugin to one replica, over the simulated network. It works for as long as
// something was acknowledged on it lately: heartbeats go over it all the time. A call through it may arrive
// twice, and late. One thread.

#include <functional>
#include <string>
#include <vector>

#include "fencing/agent/replica_table.h"
#include "fencing/sim/process.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {

class ReplicaLink final : public ReplicaConnection {
 public:
  ReplicaLink(const Machine& machine, Process& process, Replica& to)
      : ReplicaConnection(to.address()), machine_(machine), process_(process), to_(to) {
    NoteIfOpen();
  }

  Replica& to() const { return to_; }
  // To be called with each heartbeat.
  void NoteIfOpen() const;

  bool IsConnected() const override;
  CallOutcome AcquireGrant(const NodeId& node, const VolumeId& volume, const WantedUse& use,
                           absl::Duration wait, absl::Duration limit, lunkeeper::Grant* grant) const override;
  CallOutcome ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation,
                           absl::Duration limit) const override;
  CallOutcome ListGrants(const NodeId& node, const VolumeId& volume, absl::Duration limit,
                         std::vector<HeldGrant>* held) const override;
  CallOutcome OpenHeartbeatLun(const NodeId& node, const std::string& array, absl::Duration limit,
                               Connection* connection) const override;

 private:
  // Of one call, at both ends of it.
  struct Exchange {
    absl::Status status = absl::UnavailableError("the connection is dead");
    bool answered = false, over = false;
    std::unique_ptr<Signal> arrived;
  };
  using Question = std::function<absl::Status(NodeRequests& requests, const std::function<bool()>& hung_up)>;
  CallOutcome Ask(absl::Duration limit, const Question& question) const;
  static void Send(World& world, Endpoint from, Replica& to, const std::shared_ptr<Exchange>& exchange,
                   const Question& question);

  const Machine& machine_;
  Process& process_;
  Replica& to_;
  mutable std::optional<WorldTime> open_at_;  // the way there and back, last
};

}  // namespace lunkeeper::fencing::sim
