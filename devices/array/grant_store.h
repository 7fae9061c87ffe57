#pragma once
// Grants: which node may use which volume, and how. A grant is a lock that the array itself enforces: behind
// each one stands a target that lets in this node alone. See devices/array/array.h for threads, durability
// and failure.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/volume_uses.h"
#include "devices/grant.h"
#include "devices/types.h"

namespace lunkeeper {

// For callers of ReleaseGrant who cannot know the generation: it matches whichever grant there is.
constexpr Generation kAnyGeneration = 0;

struct GrantRequest {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  size_t most = 0;  // volumes of this array that the node may have; 0: any number
  VolumeMode mode = VolumeMode::kAny;
  std::string node_uid = {};  // of the orchestrator's Node object; empty: not known
  // Called about once a second while the request waits: true ends it with CANCELLED, so that a caller who has
  // gone is not given a grant that nobody uses. Empty: never.
  std::function<bool()> abandoned = {};
};

// FAILED_PRECONDITION, in words: the volume was made for `uses`, and this is none of them.
absl::Status NotMadeFor(const GrantRequest& request, const VolumeUses& uses);

// Restricts a listing; an empty member restricts nothing.
struct GrantFilter {
  VolumeId volume;
  NodeId node;
  // Only who has which volume, how, and with which limits. The rest may be missing; connections, and so
  // secrets, always are.
  bool holders_only = false;
};

// One login of a node to the target of its grant, with the commands that it has completed.
struct GrantSession {
  VolumeId volume;
  NodeId node;
  // Since the grant was made.
  uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
};

// Grants of which nobody can say now whether they are used: neither that there is a session, nor that there
// is none.
struct UnseenGrants {
  std::string why;  // for people; the same for as long as it lasts
  std::vector<std::pair<VolumeId, NodeId>> grants;
};

struct SeenSessions {
  std::vector<GrantSession> sessions;
  std::vector<UnseenGrants> unseen = {};
};

class GrantStore {
 public:
  virtual ~GrantStore() = default;

  // Waits until no other node's grant is in the way, then opens a target to this node alone, with a secret of
  // its own. The same node asking again gets the grant it has. FAILED_PRECONDITION: `node` is fenced; or it
  // has the volume with another access; or the volume was not made for this use; or the volume is held and
  // `wait` is zero (the message names the holder). DEADLINE_EXCEEDED: held for all of `wait`.
  // RESOURCE_EXHAUSTED: it would be more than `most`.
  virtual absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) = 0;
  // Closes the target to logins, ends its sessions, waits until their commands are over and deletes it; or
  // fails, and the grant is still there. OK when there is no such grant, or it is the other owner's, or of
  // another generation than the one named: a late repetition does not touch a newer grant.
  virtual absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                                    Generation generation) = 0;
  virtual absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) = 0;
  // Another text whenever some grant may have changed since the last call, so that what was listed after one
  // call is still right when the next one gives the same. Empty: nobody knows. Fails when ListGrants
  // would.
  virtual absl::StatusOr<std::string> GrantsVersion() { return ""; }

  // All of them, or an error.
  virtual absl::StatusOr<std::vector<GrantSession>> ListSessions() = 0;
  // For callers who take what is not seen for unknown: a part of the array that does not answer costs what is
  // at that part alone. Fails when the array cannot speak for any node.
  virtual absl::StatusOr<SeenSessions> ListSeenSessions() {
    absl::StatusOr<std::vector<GrantSession>> all = ListSessions();
    if (!all.ok()) return all.status();
    return SeenSessions{.sessions = *std::move(all)};
  }
  // The volumes for which a call to AcquireGrant waits now.
  virtual absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() = 0;
};

}  // namespace lunkeeper
