#pragma once
// An array whose lists take long: half of the time passes before the grants are read, and half of it after
// the heartbeats were read, while that answer is on its way. All else is the real array's, which outlives
// this. Thread-safe.

#include <atomic>
#include <chrono>
#include <thread>

#include "devices/array/array.h"

namespace lunkeeper::fencing {

class SlowArray final : public Array, public GrantStore, public FenceControl {
 public:
  SlowArray(Array& real, std::chrono::milliseconds look_takes) : real_(real), half_(look_takes / 2) {}

  // Looks that have ended.
  int looks() const { return looks_; }

  VolumeStore& volumes() override { return real_.volumes(); }
  SnapshotGroups& groups() override { return real_.groups(); }
  SnapshotBlocks& blocks() override { return real_.blocks(); }
  NameIndex& names() override { return real_.names(); }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    return real_.grants().AcquireGrant(request, wait);
  }
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override {
    return real_.grants().ReleaseGrant(volume, node, owner, generation);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    std::this_thread::sleep_for(half_);
    return real_.grants().ListGrants(filter);
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override { return real_.grants().ListSessions(); }
  absl::StatusOr<SeenSessions> ListSeenSessions() override { return real_.grants().ListSeenSessions(); }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    return real_.grants().ListWantedVolumes();
  }

  absl::StatusOr<Term> BeginTerm(const std::string& holder) override {
    return real_.fences().BeginTerm(holder);
  }
  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override {
    return real_.fences().FenceNode(term, request);
  }
  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override {
    return real_.fences().UnfenceNode(term, node, generation);
  }
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override { return real_.fences().ListFences(); }
  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest& request) override {
    return real_.fences().OpenHeartbeatLun(request);
  }
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override {
    auto heartbeats = real_.fences().ListHeartbeats();
    std::this_thread::sleep_for(half_);
    ++looks_;
    return heartbeats;
  }

 private:
  Array& real_;
  const std::chrono::milliseconds half_;
  std::atomic<int> looks_ = 0;
};

}  // namespace lunkeeper::fencing
