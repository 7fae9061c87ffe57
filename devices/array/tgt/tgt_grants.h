#pragma once
// One cluster's grants in the tgt array. devices/array/grant_store.h says what each call does and
// how it fails. Thread-safe. It keeps nothing: what lasts is in the parts, which outlive it.

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/steady_deadline.h"
#include "devices/array/grant_store.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {

class TgtGrants final : public GrantStore {
 public:
  TgtGrants(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override;
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override;
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override;
  absl::StatusOr<std::string> GrantsVersion() override;
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override;
  // Without the grants in a further tgtd that cannot be asked. Fails without the first one, which has the
  // heartbeats: then an idle node looks like a dead one.
  absl::StatusOr<SeenSessions> ListSeenSessions() override;
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override;

 private:
  absl::Status CheckVolumeIsFit(const GrantRequest& request);
  // The grant, if the volume is free now, with its target open. The caller is inside the gate.
  absl::Status CheckIsClosed(const VolumeId& volume);
  absl::StatusOr<Grant> TryAcquire(const GrantRequest& request);
  absl::StatusOr<Grant> AcquireInLine(const GrantRequest& request, absl::Duration wait);
  // For a moment, so that the caller looks for a fence meanwhile.
  void AwaitTurn(const GrantRequest& request, const SteadyDeadline& deadline);
  Grant DescribeGrant(const GrantRow& row, const Volume& volume) const;
  // The volumes of the grants that ListGrants answers, by id.
  absl::StatusOr<absl::flat_hash_map<VolumeId, Volume>> FindVolumesOf(const GrantFilter& filter);
  // Adds this cluster's.
  void AddSessions(const std::vector<TgtStatistics>& statistics, const GrantsByTarget& by_target,
                   std::vector<GrantSession>& sessions) const;

  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
