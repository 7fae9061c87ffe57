#pragma once
// The volumes of a supervisor and the worker that serves them, under one lock: the steps of which the calls
// of clients (volume_calls.h) and the work of the main thread (supervisor.h) consist.
//
// Thread-safe. A step that waits (for a login, a worker's answer, another call) does so without the lock,
// until its deadline or until the data path ends; it fails then with DEADLINE_EXCEEDED or UNAVAILABLE. A
// volume that is passed to a step is in the caller's call (volume_table.h). The eventfd `answers` is raised
// by workers when something in the shared memory has changed; the main thread then calls Wake.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/crash_history.h"
#include "devices/datapath/duplicates.h"
#include "devices/datapath/hand_over_phase.h"
#include "devices/datapath/inheritance.h"
#include "devices/datapath/orphaned_devices.h"
#include "devices/datapath/volume_table.h"
#include "devices/datapath/worker_process.h"

namespace lunkeeper {

// Of a volume's target, as a detach sees it.
enum class TargetCondition {
  kHealthy,  // a worker serves the volume, and the target answers
  kAway,     // it may come back: whatever is cached can still reach it
  kFailed,   // the volume failed for good, by itself or by a command: nothing can reach it
};

class SupervisedVolumes {
 public:
  // `state`: new, or a predecessor's. `answers` outlives this. `upgrade_binary`: for UpgradeWorker.
  SupervisedVolumes(const WorkerOptions& options, VolumesState state, int answers, std::string tag_prefix,
                    std::string upgrade_binary);

  // Of the main thread.

  // Starts a worker if there is none and it is time; the pidfd of the one that runs, -1 if none does.
  int KeepWorkerRunning() ABSL_LOCKS_EXCLUDED(mutex_);
  void CollectDeadWorker() ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called once a second: kills a worker that hangs, and brings the duplicates up to date.
  void RunTick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Has every waiting step look again.
  void WakeWaiters() ABSL_LOCKS_EXCLUDED(mutex_);
  // No new volumes from now on; returns how many there are.
  size_t RefuseNewVolumes() ABSL_LOCKS_EXCLUDED(mutex_);
  // New volumes are refused, and the last one is gone.
  bool IsDone() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the worker, all I/O and all waiting.
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsWorkerReady() ABSL_LOCKS_EXCLUDED(mutex_);
  // There is a store, which is to be given these descriptors (duplicates.h); or none.
  absl::StatusOr<std::vector<int>> OfferDuplicates() ABSL_LOCKS_EXCLUDED(mutex_);
  void WithdrawDuplicates() ABSL_LOCKS_EXCLUDED(mutex_);
  HandOverPhase hand_over() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a successor's call: one at a time, in this order.
  // From now on calls wait. Everything that a successor needs, once no call works on a volume.
  // FAILED_PRECONDITION: this kernel cannot. UNAVAILABLE: not now; calls go on.
  absl::StatusOr<UniqueFd> PrepareHandOver(int lock_file, int listener) ABSL_LOCKS_EXCLUDED(mutex_);
  // OK: no worker is left, and none is started.
  absl::Status StopWorkerForGood(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Given, then done; or none: service goes on here.
  void SetHandOver(HandOverPhase phase) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a client's call.

  // Waits until no call works on the volume and gives it to this one; nullptr: there is no such volume.
  absl::StatusOr<SupervisedVolume*> BeginCall(const VolumeId& id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndCall(SupervisedVolume& volume) ABSL_LOCKS_EXCLUDED(mutex_);
  // A new volume, in the caller's call. ABORTED: another call has made it meanwhile. UNAVAILABLE:
  // new ones are refused.
  absl::StatusOr<SupervisedVolume*> InsertVolume(const datapath::Attach& options) ABSL_LOCKS_EXCLUDED(mutex_);
  void EraseVolume(const SupervisedVolume& volume) ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps the mount with the volume and gives its requests to the worker, which logs in.
  void ServeMount(SupervisedVolume& volume, FuseMount fuse) ABSL_LOCKS_EXCLUDED(mutex_);
  // PERMISSION_DENIED: the target refused the login. FAILED_PRECONDITION: another LUN, or a smaller one.
  absl::Status AwaitLogin(const SupervisedVolume& volume, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  void KeepLoop(SupervisedVolume& volume, LoopDevice loop) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the target until `deadline` where it is away, and says what it is like now.
  TargetCondition AwaitTarget(const SupervisedVolume& volume, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // For what others read of a volume in a call: `has_child` (no duplicates are kept then), and `loss`.
  void ChangeKept(const std::function<void()>& change) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the loop device out of the volume. I/O that is under way fails where the target is not well, since
  // the removal of the device would have to wait for it.
  LoopDevice TakeLoop(SupervisedVolume& volume) ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseMount(SupervisedVolume& volume) ABSL_LOCKS_EXCLUDED(mutex_);
  // Has the worker carry out a command, or the next worker if that one dies; returns its errno.
  absl::StatusOr<int> AskWorker(const SupervisedVolume& volume, datapath::WorkerCommand command,
                                absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of any caller; these wait for no other call.

  // Marks the volume as to be failed, now and by each later worker, if it is on that target.
  absl::Status FailVolume(const VolumeId& id, const std::string& target, const std::string& reason)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SetLimits(const VolumeId& id, const VolumeLimits& limits) ABSL_LOCKS_EXCLUDED(mutex_);
  // Replaces the worker, and waits until the new one is ready.
  absl::Status UpgradeWorker(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION: there are volumes.
  absl::Status StopUnlessUsed() ABSL_LOCKS_EXCLUDED(mutex_);
  datapath::Device DescribeVolume(const SupervisedVolume& volume) ABSL_LOCKS_EXCLUDED(mutex_);
  // Those with a device, of one volume or (`id` empty) of all; orphans where there is none, or for all.
  std::vector<datapath::Device> ListDevices(const VolumeId& id, bool statistics) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<datapath::Device> FindOrphans(const VolumeId& id) ABSL_LOCKS_EXCLUDED(mutex_);

  // Acknowledged writes of which no flush is known.
  uint64_t unflushed_writes(const SupervisedVolume& volume) const { return SlotOf(volume).lun.unflushed(); }
  // Writes and flushes that have failed since the last call, whichever worker answered them.
  uint64_t TakeFailedWrites(const SupervisedVolume& volume) { return SlotOf(volume).TakeFailedWrites(); }
  uint32_t block_size(const SupervisedVolume& volume) const { return SlotOf(volume).lun.block_size; }
  const std::string& tag_prefix() const { return tag_prefix_; }

 private:
  void UpdateDuplicates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    duplicates_.Update(table_.volumes(), next_tag_);
  }
  void SetCulpritAside() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TargetCondition ConditionOf(const SupervisedVolume& volume) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseVolume(SupervisedVolume& volume, const char* reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitNoHandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  VolumeSlot& SlotOf(const SupervisedVolume& volume) const { return memory_.state()->slots[volume.slot]; }

  const std::string tag_prefix_;
  const std::string upgrade_binary_;
  SharedMemory memory_;

  SteadyMutex mutex_;
  WorkerProcess worker_ ABSL_GUARDED_BY(mutex_);
  VolumeTable table_ ABSL_GUARDED_BY(mutex_);
  CrashHistory crashes_ ABSL_GUARDED_BY(mutex_);
  Duplicates duplicates_ ABSL_GUARDED_BY(mutex_);
  OrphanedDevices orphans_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_tag_ ABSL_GUARDED_BY(mutex_);
  HandOverPhase hand_over_ ABSL_GUARDED_BY(mutex_) = HandOverPhase::kNone;
  bool refuses_new_ ABSL_GUARDED_BY(mutex_) = false;  // no new volumes; the process ends when there is none
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;       // steps that wait give up
};

}  // namespace lunkeeper
