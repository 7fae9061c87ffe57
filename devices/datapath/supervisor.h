#pragma once
// The supervisor: what has to survive the worker. It owns the control socket, each volume's FUSE descriptors,
// loop device and options (secrets among them, in locked memory), and keeps a worker running. It moves no
// data, and never itself waits for I/O of its volumes (isolated.h), so that everything is over when it is
// killed: the descriptors close, and with them go the FUSE connections, the loop devices nobody uses, and the
// worker.
//
// Thread safety: Run is called once, from the program's main thread; it starts one thread for each call of a
// client and joins them all. Failure of a volume's step undoes the steps before it; a call may be repeated.

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/datapath/datapath.h"
#include "devices/datapath/fuse_mount.h"
#include "devices/datapath/loop_device.h"
#include "devices/datapath/worker_process.h"

namespace lunkeeper {

class Supervisor {
 public:
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(const DatapathOptions& options);
  ~Supervisor();

  // Serves until told to stop (datapath.h says by what).
  absl::Status Run();

 private:
  struct Volume {
    datapath::Attach options;
    uint32_t slot = 0;
    FuseMount fuse;
    LoopDevice loop;
    bool busy = true;    // a call is working on it, and it alone changes it
    bool given = false;  // a worker has read its requests
    std::string lost;    // why it failed for good without its Lun's doing
    std::string failed;  // why every worker is to fail it
  };
  struct CallThread {
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  Supervisor(const DatapathOptions& options, SharedMemory memory, UniqueFd lock, UniqueFd listener);

  // The main thread's part.
  void TakeSignal();
  void AcceptCall();
  void OnWorkerDeath();
  void StartWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick();
  void JoinEnded();
  bool MayEnd();
  void LetGo();

  // Calls, each on its thread.
  void ServeCall(const UniqueFd& socket);
  void Reply(int socket, const absl::StatusOr<std::vector<datapath::Device>>& result);
  absl::StatusOr<std::vector<datapath::Device>> Serve(const datapath::Request& request);
  absl::StatusOr<datapath::Device> Attach(const datapath::Attach& request, absl::Time deadline);
  absl::Status SetUp(Volume& volume, absl::Time deadline);
  absl::Status WaitForLogin(Volume& volume, absl::Time deadline);
  absl::Status Detach(const std::string& name, absl::Time deadline);
  absl::Status AwaitNoOrphan(const std::string& name, absl::Time deadline);
  absl::Status TakeDown(Volume& volume, absl::Time deadline);
  absl::Status Seal(const Volume& volume, absl::Time deadline);
  absl::Status WithdrawLoop(Volume& volume, absl::Time deadline);
  absl::Status Withdraw(Volume& volume, absl::Time deadline);
  void Fail(const datapath::Fail& request);
  absl::StatusOr<datapath::Device> Resize(const std::string& name, absl::Time deadline);
  absl::Status Grow(Volume& volume, absl::Time deadline);
  absl::Status Upgrade(absl::Time deadline);
  absl::Status Stop();
  std::vector<datapath::Device> List(const std::string& name);

  // Waits until no call works on the volume and takes it for this one; nullptr: there is none.
  absl::StatusOr<Volume*> Claim(const std::string& name, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Volume*> Insert(const datapath::Attach& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsTaken(uint32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOurs(int loop_number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveToWorker(Volume& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailInWorker(const Volume& volume, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out a command in the worker, or in the next if that one dies: its errno.
  absl::StatusOr<int> Ask(const Volume& volume, datapath::WorkerCommand command, absl::Time deadline);
  datapath::Device Describe(const Volume& volume) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddOrphans(const std::string& name, std::vector<datapath::Device>* devices)
      ABSL_LOCKS_EXCLUDED(mutex_);
  VolumeSlot& SlotOf(const Volume& volume) const { return memory_.state()->slots[volume.slot]; }

  // Constant after construction.
  const DatapathOptions options_;
  const std::string tag_prefix_;
  const std::string upgrade_binary_;
  SharedMemory memory_;
  const UniqueFd lock_;  // held as long as this supervisor lives
  const UniqueFd listener_;
  const UniqueFd answers_;  // eventfd: something in the shared memory has changed
  const UniqueFd signals_;

  // The main thread's.
  std::list<CallThread> calls_;
  int stop_signals_ = 0;

  absl::Mutex mutex_;
  WorkerProcess worker_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<Volume>> volumes_ ABSL_GUARDED_BY(mutex_);
  // Devices that a supervisor which died left in use.
  std::vector<FoundLoop> orphans_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_slot_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_tag_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;  // no new volumes; end when there is none
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;    // calls give up
};

}  // namespace lunkeeper
