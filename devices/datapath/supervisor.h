#pragma once
// The supervisor: what has to survive the worker. It owns the control socket, each volume's FUSE descriptors,
// loop device and options (secrets among them, in locked memory), and keeps a worker running. It moves no
// data, and never itself waits for I/O of its volumes (base/child.h), so that everything is over when it is
// killed: the descriptors close, and with them go the FUSE connections, the loop devices nobody uses, and the
// worker.
//
// This class is the process: socket, signals, ticks, and a thread for each call of a client. The volumes and
// the worker are in supervised_volumes.h, what the calls do in volume_calls.h, how one supervisor follows
// another in hand_over.h and succession.h.
//
// Thread safety: Run is called once, from the program's main thread; it joins all threads that it starts.

#include <atomic>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/datapath/control_calls.h"
#include "devices/datapath/datapath.h"
#include "devices/datapath/hand_over.h"
#include "devices/datapath/supervised_volumes.h"

namespace lunkeeper {

class Supervisor {
 public:
  // The first one at its socket. ALREADY_EXISTS: there is one.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(const DatapathOptions& options);
  // The next one: with the volumes of the one there is. Failure: as TakeOver says (hand_over.h).
  static absl::StatusOr<std::unique_ptr<Supervisor>> Succeed(const DatapathOptions& options);
  ~Supervisor();

  // Serves until told to stop (datapath.h says by what), or until a successor serves. DEADLINE_EXCEEDED: a
  // successor whose worker does not get ready; its predecessor serves on.
  absl::Status Run();
  bool handed_over() const { return handed_over_; }
  bool stop_requested() const { return stop_requested_; }

 private:
  struct CallThread {
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  // `predecessor`: none, or the connection on which it waits for ConfirmService.
  Supervisor(const DatapathOptions& options, Inheritance inheritance, UniqueFd predecessor);

  void BeginService();
  void OfferDuplicates();
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
  const std::string ready_file_;
  const UniqueFd lock_;  // held as long as this supervisor lives
  const UniqueFd listener_;
  const UniqueFd answers_;  // eventfd: something in the shared memory has changed
  const UniqueFd signals_;

  SupervisedVolumes volumes_;
  const Predecessor predecessor_side_;
  ControlCalls control_calls_;

  // The main thread's.
  bool serving_ = false;  // accepts calls
  bool handed_over_ = false;
  UniqueFd predecessor_;
  std::vector<UniqueFd> predecessors_parcels_;  // of one that died (duplicates.h)
  UniqueFd duplicate_store_;                    // the connection
  std::list<CallThread> calls_;
  bool stop_requested_ = false;
  int interrupts_ = 0;  // SIGINT
};

}  // namespace lunkeeper
