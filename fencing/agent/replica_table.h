#pragma once
// The controller replicas that a node knows, and how it asks them: one after another, until one answers. Its
// owner makes the connections and says where replicas are; so the simulator runs it, too.
//
// Thread-safe. CallAny alone blocks. A replica stays usable while somebody holds it, also when it is known no
// more.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/steady_mutex.h"
#include "node/grant_source.h"

namespace lunkeeper {

struct CallOutcome {
  absl::Status status;
  bool is_answer = false;  // from the replica's own handler (fencing/protocol/answer_mark.h)
};

// One replica, as a node asks it. Each call of a method is one call to it, which ends within `limit`; what it
// returns by pointer is set if it succeeds. All of them may be repeated, also at another replica.
class ReplicaConnection {
 public:
  explicit ReplicaConnection(std::string its_address) : address(std::move(its_address)) {}
  virtual ~ReplicaConnection() = default;
  virtual bool IsConnected() const = 0;
  virtual CallOutcome AcquireGrant(const NodeId& node, const VolumeId& volume, const WantedUse& use,
                                   absl::Duration wait, absl::Duration limit, Grant* grant) const = 0;
  virtual CallOutcome ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation,
                                   absl::Duration limit) const = 0;
  virtual CallOutcome ListGrants(const NodeId& node, const VolumeId& volume, absl::Duration limit,
                                 std::vector<HeldGrant>* held) const = 0;
  virtual CallOutcome OpenHeartbeatLun(const NodeId& node, const std::string& array, absl::Duration limit,
                                       Connection* connection) const = 0;

  const std::string address;
};

class ReplicaTable {
 public:
  using Replicas = std::vector<std::shared_ptr<const ReplicaConnection>>;
  // Never blocks. `name` is the one in the replica's certificate.
  using Connect = std::function<std::shared_ptr<const ReplicaConnection>(const std::string& address,
                                                                         const std::string& name)>;
  // `configured`, for people: where replicas are looked for.
  ReplicaTable(Connect connect, std::string configured, Executor& executor = RealExecutor())
      : connect_(std::move(connect)), configured_(std::move(configured)), executor_(executor) {}

  // The addresses to which the configured names lead now, each with its name. `complete`: every name was
  // resolved, and what is not among them goes, unless a replica has named it within 15 s.
  void NoteResolved(const std::map<std::string, std::string>& found, bool complete)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By another replica. With 32 replicas no more are added.
  void NoteNamed(const std::string& address, const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Connected ones first, of them the ones whose last call failed, within 10 s, last.
  Replicas ListReplicas() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the first one.
  void AwaitReplicas(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  using Call = std::function<CallOutcome(const ReplicaConnection& replica, absl::Duration limit)>;
  // Calls one replica after another until one answers or `within` has passed. An answer, good or bad, is
  // final. UNAVAILABLE: none answered; the message begins with `what` and says of each one that was asked
  // what became of that.
  absl::Status CallAny(const std::string& what, absl::Duration within, const Call& call);

 private:
  struct Entry {
    std::shared_ptr<const ReplicaConnection> replica;
    std::optional<absl::Duration> named_at;   // by another replica
    std::optional<absl::Duration> failed_at;  // if the last call was not answered
  };
  void NoteOutcome(const std::string& address, bool answered) ABSL_LOCKS_EXCLUDED(mutex_);

  const Connect connect_;
  const std::string configured_;
  Executor& executor_;
  SteadyMutex mutex_;
  std::map<std::string, Entry> replicas_ ABSL_GUARDED_BY(mutex_);  // by address
};

}  // namespace lunkeeper
