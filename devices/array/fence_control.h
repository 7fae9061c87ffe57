#pragma once
// Fences, the terms that order who may fence, and the heartbeat LUNs by which the array hears the nodes
// itself. See devices/array/array.h for threads, durability and failure.
//
// A fence is of one node, by its id, or of a machine (MachineId in devices/node_id.h): that one closes every
// node of the machine's name, also one that never asked before. The two are apart: to lift one does not lift
// the other, and a node gets grants again when there is neither.
//
// Terms stop an old leader: every fence and unfence carries the caller's term, and the array refuses one that
// is older than the newest it has given out.
//
// Each node writes a heartbeat (devices/heartbeat/heartbeat_block.h) twice a second to a heartbeat LUN of its
// own. So the array can say that a node lives when the network between that node and the controllers does
// not. In the other direction, the array writes there which fence is in force against the node
// (fence_notice.h). A heartbeat LUN is no volume: it is granted to one node alone and for good, is never
// fenced, and is in no list and no limit. The array forgets one that was not written to for a week, and makes
// it again when the node asks for it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

namespace lunkeeper {

struct FenceRequest {
  NodeId node;
  std::vector<VolumeId> volumes = {};
  std::string node_uid = {};  // of the orchestrator's Node object; empty: not known
  // The caller and its reason: for people, at most kLongestReason bytes each. Empty: what was
  // stored before stays.
  std::string fenced_by = {};
  std::string reason = {};
  bool all_volumes = false;  // those above, and all that it has a grant of now
};
constexpr size_t kLongestReason = 200;
constexpr char kOperator[] = "operator@";  // so begins `fenced_by` where a person asked the array itself

struct FenceRecord {
  NodeId node;
  Generation generation = 0;
  Term term = 0;
  std::vector<VolumeId> volumes;
  std::string node_uid = {};
  std::string fenced_by = {};
  std::string reason = {};
  absl::Time fenced_at = absl::UnixEpoch();  // when these two came; the epoch: not known
};

struct HeartbeatLunRequest {
  NodeId node;
  // The node signs its heartbeats and checks the array's signatures. It gets a key then, and from then on the
  // array takes no unsigned heartbeat; a node that asks without it goes back to unsigned ones.
  bool signs = false;
};

// The last heartbeat of a node that landed since the array's program was started.
struct LandedHeartbeat {
  NodeId node;
  uint64_t sequence = 0;  // changes with each heartbeat
  absl::Duration age;     // since it was seen, on the array's own monotonic clock
};

class FenceControl {
 public:
  virtual ~FenceControl() = default;

  // A new term for `holder`, higher than any before it. From then on calls with an older one are refused.
  virtual absl::StatusOr<Term> BeginTerm(const std::string& holder) = 0;
  // Closes the node to new grants and ends its grants of these volumes, as ReleaseGrant does; of a machine,
  // the grants of every node of its name. Stored before
  // it acts. Returns once every grant is drained and deleted: from then on no write of the node reaches these
  // volumes. Repeating it adds volumes. FAILED_PRECONDITION: a newer term exists. DEADLINE_EXCEEDED: commands
  // would not end; the fence stays, the array goes on draining, and the call is to be repeated.
  // UNIMPLEMENTED: the array's agent is older than fences of machines.
  virtual absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) = 0;
  // Opens the node to new grants; restores none. FAILED_PRECONDITION: an older term, or the fence in force
  // has another generation. OK when there is none.
  virtual absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) = 0;
  virtual absl::StatusOr<std::vector<FenceRecord>> ListFences() = 0;

  // How the node reaches its heartbeat LUN, which is made if there is none yet. RESOURCE_EXHAUSTED: its
  // machine has too many, under other instances.
  virtual absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest& request) = 0;
  // UNIMPLEMENTED: an array without heartbeat LUNs.
  virtual absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() = 0;
};

}  // namespace lunkeeper
