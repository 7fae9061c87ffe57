#pragma once
// Publishes a VolumeLock in Kubernetes for each granted volume, as polls of the arrays show the grants:
// creates, updates and deletes the objects. They are a view for people: nothing decides by them, and nothing
// waits for them. Only the leading replica writes, one call at a time, after failover's own writes. Each
// write is conditional on the version that was last seen.
//
// The thread that runs the posted jobs uses it; a thread of its own makes the calls. Nothing fails: the next
// sweep finds a lock that was not written. The destructor ends a call in progress. `client` and
// everything in `inputs` outlive it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "fencing/core/cluster.h"
#include "fencing/failover/array_actions.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/volume_lock.h"
#include "fencing/kube/reflector.h"

namespace lunkeeper::fencing {

struct LockPublisherInputs {
  std::function<void(std::function<void()>)> post;
  // Called before each write, on any thread: whether this replica leads, and failover has no writes waiting.
  std::function<bool()> may_write;
  std::function<bool(const ArrayId&)> has_array;
  const Cluster& cluster;
  const ObjectCache& objects;
  Executor& executor = RealExecutor();
  // What a node says of its device. Empty: nothing is known of devices.
  std::function<DeviceDetail(const NodeId&, const VolumeId&)> find_detail = {};
};

class VolumeLockPublisher final : private kube::WatchSink {
 public:
  VolumeLockPublisher(kube::KubeClient& client, LockPublisherInputs inputs);
  ~VolumeLockPublisher() override;

  // Compares the locks of the array's next volumes with the poll, and begins to write what differs.
  void OnArrayPoll(const ArrayPoll& poll, Instant now);

 private:
  using Holders = std::map<VolumeId, std::vector<LockHolder>>;
  struct Sweep {
    std::optional<Instant> at;
    VolumeId from;  // the last volume of the previous sweep; empty: begin with the first
  };
  struct Known {
    LockFacts facts;
    bool exists = false;       // false: the object is gone; its times are kept, as its grant may still exist
    uint32_t list = 0;         // the number of the last list that had it
    size_t verified_hash = 0;  // of the lock that the object was last found to show
  };
  struct Write {
    std::string name;
    Version expected;   // empty: create the object
    kube::Json status;  // null: delete it
  };

  Holders NextOf(const ArrayPoll& poll, const VolumeId& from, VolumeId& to) const;
  // The writes that make the locks of the volumes in (from, to] agree with `held`. Locks of removed arrays
  // are deleted as well, since no poll will ever show those. When there are more writes than a sweep may
  // make, `to` moves back to the last volume that was compared.
  std::vector<Write> PlanWrites(const ArrayId& array, Holders held, const VolumeId& from, VolumeId& to);
  VolumeLock DescribeLock(const VolumeId& volume, std::vector<LockHolder> holders,
                          const LockFacts* known) const;
  // On the reflector's thread: they post what follows.
  void OnListStart() override;
  void OnObject(const kube::Json& object) override;
  void OnDeleted(const kube::Json& object) override;
  void OnListEnd() override;
  void OnLive(bool live) override;
  void KeepLock(const VolumeId& volume, LockFacts facts);
  void ForgetLock(const VolumeId& volume);
  void ForgetUnlisted();
  void SubmitWrites(const std::vector<Write>& writes);
  absl::Status WriteLock(const Write& write);

  kube::KubeClient& client_;
  const LockPublisherInputs inputs_;
  bool live_ = false, writing_ = false;
  std::map<ArrayId, Sweep> sweeps_;
  uint32_t list_ = 0;
  std::map<VolumeId, Known> locks_;
  std::string error_;  // of the thread that writes
  std::stop_source end_;
  const std::unique_ptr<Workers> worker_;
  const std::unique_ptr<kube::Reflector> reflector_;  // last: its thread uses the others
};

}  // namespace lunkeeper::fencing
