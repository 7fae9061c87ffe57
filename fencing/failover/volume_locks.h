#pragma once
// Keeps a VolumeLock in Kubernetes for each volume that has a grant, by what the arrays were seen to hold:
// made, put right after whatever somebody did to it, and taken away. It is a view: nothing is ever decided
// from it, so nothing waits for it. Only the replica that leads writes, a few objects a second and one call
// at a time, each on condition that the object is as it was seen; failover's own writes go first.
//
// One thread uses it, the one that runs what is posted; calls are made on a thread of its own. Nothing fails:
// what was not done is tried again with the next look at the array. The destructor waits for a call in
// progress. What it is given outlives it.

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

struct LockDuties {
  std::function<void(std::function<void()>)> post;
  // Asked before each write, on any thread: this replica leads, and failover writes nothing now.
  std::function<bool()> may_write;
  std::function<bool(const ArrayId&)> has_array;
  const Cluster& cluster;
  const ObjectCache& objects;
};

class VolumeLocks {
 public:
  VolumeLocks(kube::KubeClient& client, LockDuties duties);
  ~VolumeLocks();

  // What an array was seen to hold. Looks at some of the locks of its volumes, another time at the next ones.
  void Show(const ArrayPoll& poll, Instant now);

 private:
  using Holders = std::map<VolumeId, std::vector<LockHolder>>;
  struct Sweep {
    std::optional<Instant> at;
    VolumeId from;  // the last that was looked at; empty: begin with the first
  };
  struct Known {
    std::shared_ptr<const LockFacts> facts;
    bool there = true;  // if not, its grant may still be, and its time is remembered
    size_t right = 0;   // the hash of what it was last found to say
  };
  struct Write {
    std::string name;
    Version expected;   // empty: it is to be made
    kube::Json status;  // null: it is to go
  };

  Holders NextOf(const ArrayPoll& poll, const VolumeId& from, VolumeId& to) const;
  // What is to be written so that the locks of (from, to] are those of `held`. Those of arrays that are no
  // more go too: nobody looks at these. Where that is more than one sweep writes, `to` becomes the last that
  // was looked at.
  std::vector<Write> Compare(const ArrayId& array, Holders held, const VolumeId& from, VolumeId& to);
  VolumeLock Describe(const VolumeId& volume, std::vector<LockHolder> holders, const LockFacts* known) const;
  void OnLock(const std::string& name, const std::shared_ptr<const LockFacts>& facts);
  void SubmitWrites(const std::vector<Write>& writes);
  absl::Status Do(const Write& write);

  kube::KubeClient& client_;
  const LockDuties duties_;
  bool live_ = false, writing_ = false;
  std::map<ArrayId, Sweep> sweeps_;
  std::map<VolumeId, Known> locks_;
  std::string error_;  // of the thread that writes
  std::atomic<bool> stopping_ = false;
  boost::asio::thread_pool worker_{1};
  std::unique_ptr<kube::Informer<LockFacts>> mirror_;  // last: its thread uses the others
};

}  // namespace lunkeeper::fencing
