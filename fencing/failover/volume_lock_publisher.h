#pragma once
// Keeps one VolumeLock in Kubernetes for each volume that has a grant, after what polls of the arrays show:
// it creates, corrects and deletes them. VolumeLocks are a view for people. Nothing is decided from them, so
// nothing waits for them. Only the leading replica writes, one call at a time, each on condition that the
// object is as it was last seen; failover's own writes go first.
//
// One thread uses it, the one that runs the posted jobs; calls run on a thread of its own. Nothing fails:
// what was not written is found again by a later sweep. The destructor waits for a call in progress. `client`
// and everything in `inputs` outlive it.

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <map>
#include <memory>
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
};

class VolumeLockPublisher {
 public:
  VolumeLockPublisher(kube::KubeClient& client, LockPublisherInputs inputs);
  ~VolumeLockPublisher();

  // Compares the locks of some of the array's volumes with the poll. Later polls continue with the next ones.
  void OnArrayPoll(const ArrayPoll& poll, Instant now);

 private:
  using Holders = std::map<VolumeId, std::vector<LockHolder>>;
  struct Sweep {
    std::optional<Instant> at;
    VolumeId from;  // the last volume of the previous sweep; empty: begin with the first
  };
  struct Known {
    std::shared_ptr<const LockFacts> facts;
    bool there = true;         // false: the object is gone, but its grant may exist, and its times are kept
    size_t verified_hash = 0;  // the hash of what it was last found to say
  };
  struct Write {
    std::string name;
    Version expected;   // empty: it is to be made
    kube::Json status;  // null: it is to go
  };

  Holders NextOf(const ArrayPoll& poll, const VolumeId& from, VolumeId& to) const;
  // The writes that make the locks of (from, to] agree with `held`. Locks of removed arrays are deleted, too,
  // as no poll will ever show them. If that is more than one sweep may write, `to` moves back to the last
  // volume that was compared.
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
  std::atomic<bool> stopping_ = false;
  boost::asio::thread_pool worker_{1};
  std::unique_ptr<kube::Informer<LockFacts>> informer_;  // last: its thread uses the others
};

}  // namespace lunkeeper::fencing
