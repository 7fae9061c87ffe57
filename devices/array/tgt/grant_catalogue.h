#pragma once
// The catalogue's grants, those of heartbeat LUNs included. Threads, durability and failure: as catalogue.h
// says.
//
//   (none) --AddGrant--> granted --SetReleasing, a fence, a restore--> releasing --DeleteGrants--> (none)
//
// There is no way back from releasing to granted. A grant is deleted only once its target is drained and
// gone; until then its row keeps the volume closed to others.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/grant_store.h"
#include "devices/array/tgt/catalogue_file.h"

namespace lunkeeper {

struct GrantRow {
  ClusterId cluster;
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  Generation generation = 0;
  std::string secret;
  std::string target_secret = {};  // empty: the target does not prove itself
  bool releasing = false;          // being drained; never opened again
  std::string node_uid = {};
  int tgtd = 0;                  // which of the array's tgtds has the target, for life
  std::string signing_key = {};  // of a heartbeat LUN; empty: its node does not sign
};

// For a new grant: what its node and its target prove themselves by.
struct GrantSecrets {
  std::string node;
  std::string target = {};
};

using GrantsByTarget = absl::flat_hash_map<int32_t, GrantRow>;

class GrantCatalogue {
 public:
  explicit GrantCatalogue(CatalogueFile& file) : file_(file) {}

  // The grant the node has, or a new one. ABORTED: another grant is in the way (the message names the
  // holder); FAILED_PRECONDITION: the node is fenced, or has the volume with another access, or the volume
  // was not made for this use. A volume of which that is not known takes on the first use that may write.
  // New ones go to `tgtds`, one at least, by turns.
  absl::StatusOr<GrantRow> AddGrant(const ClusterId& cluster, const GrantRequest& request,
                                    const GrantSecrets& secrets, const std::vector<int>& tgtds = {0});
  absl::StatusOr<std::optional<GrantRow>> FindGrant(const VolumeId& volume, const NodeId& node);
  absl::StatusOr<std::optional<GrantRow>> FindGeneration(Generation generation);
  // The last one that was given out, to whatever.
  absl::StatusOr<Generation> LastGeneration();
  absl::StatusOr<std::vector<GrantRow>> ListGrants(const ClusterId& cluster, const GrantFilter& filter);
  // Of all clusters.
  absl::StatusOr<std::vector<GrantRow>> ListAllGrants();
  // The same by tgtd's number of each one's target. Kept until the catalogue changes, for failover asks twice
  // a second.
  absl::StatusOr<std::shared_ptr<const GrantsByTarget>> ListByTarget() ABSL_LOCKS_EXCLUDED(kept_mu_);
  absl::StatusOr<std::vector<GrantRow>> ListReleasingGrants();
  // Of all clusters, with their targets in this tgtd.
  absl::StatusOr<std::vector<GrantRow>> ListGrantsOfTgtd(int tgtd);
  // 0 without a grant.
  absl::StatusOr<int> HighestTgtd();
  // From here on the grant is never opened again.
  absl::Status SetReleasing(Generation generation);
  // Each must be releasing, or already gone. The caller has drained them.
  absl::Status DeleteGrants(const std::vector<Generation>& generations);

  // A heartbeat LUN is kept as a grant of a volume that is called `heartbeat` and is in no table. The node's,
  // or a new one; RESOURCE_EXHAUSTED: its machine has too many.
  absl::StatusOr<GrantRow> AddHeartbeatLun(const ClusterId& cluster, const NodeId& node,
                                           const GrantSecrets& secrets);
  // From now on its node signs, with the key that is there or else with this one; or, empty, no more. The key
  // in force.
  absl::StatusOr<std::string> SetSigningKey(Generation generation, const std::string& key);
  absl::StatusOr<std::vector<GrantRow>> ListAllHeartbeatLuns();
  absl::Status DeleteHeartbeatLun(Generation generation);

 private:
  absl::StatusOr<std::vector<GrantRow>> ReadGrants(const char* sql, SqlValues values);

  CatalogueFile& file_;
  absl::Mutex kept_mu_;
  std::shared_ptr<const GrantsByTarget> kept_ ABSL_GUARDED_BY(kept_mu_);
  uint64_t kept_sequence_ ABSL_GUARDED_BY(kept_mu_) = 0;
};

}  // namespace lunkeeper
