#pragma once
// Publishes a VolumeLock in Kubernetes for each granted volume, as polls of the arrays show the grants:
// creates, updates and deletes the objects. They are a view for people: nothing decides by them, and nothing
// waits for them. Only the leading replica writes, one call at a time, after failover's own writes. Each
// write is conditional on the version that was last seen.
//
// The thread that runs the posted jobs uses it; a thread of its own makes the calls. Nothing fails: the next
// sweep finds a lock that was not written. The destructor ends a call in progress. `client` and
// everything in `inputs` outlive it.

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
#include "fencing/kube/informer.h"

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

class VolumeLockPublisher {
 public:
  VolumeLockPublisher(kube::KubeClient& client, LockPublisherInputs inputs);
  ~VolumeLockPublisher();

  // Compares the locks of the array's next volumes with the poll, and begins to write what differs.
  void OnArrayPoll(const ArrayPoll& poll, Instant now);

 private:
  using Holders = std::map<VolumeId, std::vector<LockHolder>>;
  struct Sweep {
    std::optional<Instant> at;
    VolumeId from;  // the last volume of the previous sweep; empty: begin with the first
  };
  struct Known {
    std::shared_ptr<const LockFacts> facts;
    bool exists = true;        // false: the object is gone; its times are kept, as its grant may still exist
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
  void OnLock(const std::string& name, const std::shared_ptr<const LockFacts>& facts);
  void SubmitWrites(const std::vector<Write>& writes);
  absl::Status WriteLock(const Write& write);

  kube::KubeClient& client_;
  const LockPublisherInputs inputs_;
  bool live_ = false, writing_ = false;
  std::map<ArrayId, Sweep> sweeps_;
  std::map<VolumeId, Known> locks_;
  std::string error_;  // of the thread that writes
  std::stop_source end_;
  const std::unique_ptr<Workers> worker_;
  std::unique_ptr<kube::Informer<LockFacts>> informer_;  // last: its thread uses the others
};

}  // namespace lunkeeper::fencing
