#pragma once
// The supervisor: what has to survive the worker. It owns the control socket, each volume's FUSE descriptors,
// loop device and options (secrets among them, in locked memory), and keeps a worker running. It moves no
// data, and never itself waits for I/O of its volumes (base/child.h), so that everything is over when it is
// killed: the descriptors close, and with them go the FUSE connections, the loop devices nobody uses, and the
// worker.
//
// This class is the process: socket, signals, ticks, and a thread for each call of a client. The volumes and
// the worker are in supervised_volumes.h, what the calls do in volume_calls.h.
//
// Thread safety: Run is called once, from the program's main thread; it joins all threads that it starts.

#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/datapath/control_calls.h"
#include "devices/datapath/datapath.h"
#include "devices/datapath/supervised_volumes.h"

namespace lunkeeper {

class Supervisor {
 public:
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(const DatapathOptions& options);
  ~Supervisor();

  // Serves until told to stop (datapath.h says by what).
  absl::Status Run();

 private:
  struct CallThread {
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  Supervisor(const DatapathOptions& options, SharedMemory memory, UniqueFd lock, UniqueFd listener);

  void WaitForEvents();
  void ReadAnswers();
  void ReadSignals();
  void AcceptCall();
  void RunTick();
  void JoinEndedCalls();
  bool MayEnd();
  void EndEverything();

  // Constant after construction.
  const std::string socket_path_;
  const UniqueFd lock_;  // held as long as this supervisor lives
  const UniqueFd listener_;
  const UniqueFd answers_;  // eventfd: something in the shared memory has changed
  const UniqueFd signals_;

  SupervisedVolumes volumes_;
  ControlCalls control_calls_;

  // The main thread's.
  std::list<CallThread> calls_;
  int stop_signals_ = 0;
};

}  // namespace lunkeeper
