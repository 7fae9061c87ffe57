#pragma once
// Half of the Array interface: grants, fences and terms. See devices/array/array.h for threads, durability
// and failure.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/volume_store.h"
#include "devices/types.h"

namespace lunkeeper {

// What a grant allows. Exclusive goes with nothing; readers go with readers and with shared writers.
enum class Access { kExclusive, kReadOnly, kSharedWrite };
// Who took a grant: a node for itself (NodeStage), or the orchestrator for it (ControllerPublish). Only the
// same side releases it, so that an unstage does not take away what was published.
enum class GrantOwner { kNode, kOrchestrator };

// For callers of Release who cannot know it: whichever grant there is.
constexpr Generation kAnyGeneration = 0;

struct GrantRequest {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  size_t most = 0;  // volumes of this array that the node may have; 0: any number
  // Asked about once a second while the request waits: true ends it with CANCELLED, so that a caller who has
  // gone is not given a grant that nobody uses. Empty: never.
  std::function<bool()> abandoned = {};
};

struct Grant {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  Generation generation = 0;
  Connection connection;
  std::string serial;
  uint64_t size_bytes = 0;
  Durability durability = Durability::kCached;
};

// Restricts a listing; an empty member restricts nothing.
struct GrantFilter {
  VolumeId volume;
  NodeId node;
};

struct FenceRecord {
  NodeId node;
  Generation generation = 0;
  Term term = 0;
  std::vector<VolumeId> volumes;
};

// One login as the array sees it.
struct Session {
  VolumeId volume;
  NodeId node;
  uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;  // since the grant was made
};

// Grants, fences, terms.
class AccessControl {
 public:
  virtual ~AccessControl() = default;

  // A grant is a lock. Waits until no other node's grant is in its way, then opens a target to this node
  // alone, with a secret of its own. The same node asking again gets the grant it has. FAILED_PRECONDITION:
  // `node` is fenced; or it has the volume with another access; or the volume is held and `wait` is zero (the
  // message names the holder). DEADLINE_EXCEEDED: held for all of `wait`. RESOURCE_EXHAUSTED: it would be
  // more than `most`.
  virtual absl::StatusOr<Grant> Acquire(const GrantRequest& request, absl::Duration wait) = 0;
  // Closes the target to logins, ends its sessions, waits for their commands to be over and deletes it; or
  // fails, and the grant is still there. OK when there is no such grant, or it is the other owner's, or of
  // another generation than the one named: a late repetition takes nothing away from a newer grant.
  virtual absl::Status Release(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                               Generation generation) = 0;
  virtual absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) = 0;

  // A new term for `holder`, higher than any before it. From then on calls with an older one are refused.
  virtual absl::StatusOr<Term> BeginTerm(const std::string& holder) = 0;
  // Closes `node` to new grants and ends its grants of `volumes`, as Release does. Stored before it acts;
  // returns once every one is drained and deleted: from then on no write of the node reaches them. Repeating
  // it adds volumes. FAILED_PRECONDITION: a newer term exists. DEADLINE_EXCEEDED: commands would not end; the
  // fence stays and is carried on with, and the call is to be repeated.
  virtual absl::StatusOr<FenceRecord> Fence(Term term, const NodeId& node,
                                            const std::vector<VolumeId>& volumes) = 0;
  // Opens the node to new grants; restores none. FAILED_PRECONDITION: an older term, or the fence in force
  // has another generation. OK when there is none.
  virtual absl::Status Unfence(Term term, const NodeId& node, Generation generation) = 0;
  virtual absl::StatusOr<std::vector<FenceRecord>> ListFences() = 0;

  virtual absl::StatusOr<std::vector<Session>> Sessions() = 0;
  // The volumes that somebody waits for in Acquire now.
  virtual absl::StatusOr<std::vector<VolumeId>> Wanted() = 0;
};

}  // namespace lunkeeper
