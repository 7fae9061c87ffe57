#pragma once
// The supervisor's view of its worker: starts it, talks to it, sees when it is dead or hung, and decides when
// to start the next. Thread safety: none; the supervisor's lock guards it. Start is called on the thread that
// lives as long as the process, since a worker dies with the thread that started it.

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/shared_state.h"
#include "devices/datapath/volume_table.h"

namespace lunkeeper {

struct WorkerOptions {
  uint32_t threads = 1;
  uint64_t pool_bytes = 0;
  uint64_t replacement_timeout_ms = 0;
  // Calls of IsHung without a sign of life.
  int hang_ticks = 10;
  int hang_ticks_if_all_is_lost = 120;
};

class WorkerProcess {
 public:
  using Clock = std::chrono::steady_clock;

  // `answers`: an eventfd the worker signals. Both outlive this.
  WorkerProcess(WorkerOptions options, SharedMemory* memory, int answers);
  ~WorkerProcess();  // kills it and waits for it
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Replaces a worker that is not running: by the program that UpgradeTo named, else by this very one.
  absl::Status Start();
  // The next Start takes the program at `path`; once. If it fails to get ready, this program is taken again.
  void UpgradeTo(const std::string& path) { upgrade_to_ = path; }
  void KillWorker();
  // After its death: collects it, and sets the time of the next start.
  void CollectDead();

  // The descriptor is duplicated by the message. The supervisor keeps its own, so that the connection and the
  // requests in it survive the worker.
  void GiveVolume(SupervisedVolume& volume);
  void SendFail(const SupervisedVolume& volume, const std::string& reason);

  // False: it is dead or hung; it has been killed.
  bool SendCommand(const datapath::WorkerCommand& command, const std::vector<int>& fds = {});

  bool running() const { return pid_ > 0; }
  bool ready() const { return running() && memory_->state()->version == kSharedStateVersion; }
  int pidfd() const { return pidfd_.get(); }           // -1: not running
  uint64_t generation() const { return generation_; }  // rises with each Start
  Clock::time_point next_start() const { return next_start_; }
  // The last one came by UpgradeTo and never got ready.
  bool upgrade_failed() const { return upgrade_failed_; }
  // Not empty: workers die one after the other.
  const std::string& trouble() const { return trouble_; }
  // To be called once a second. `its_volumes_survive`: the kernel hands their requests to the next worker.
  // Where it does not, a kill fails them all, and a worker that was only stopped is waited for longer.
  bool IsHung(bool its_volumes_survive);

 private:
  void ExecProgram(const std::string& program, int socket) const;

  // Constant after construction.
  const WorkerOptions options_;
  SharedMemory* const memory_;
  const int answers_;

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd socket_;
  uint64_t generation_ = 0;
  std::string upgrade_to_;
  bool upgrading_ = false;  // the running one came by UpgradeTo
  bool upgrade_failed_ = false;
  std::deque<Clock::time_point> deaths_;
  Clock::time_point next_start_;
  std::string trouble_;
  std::vector<uint64_t> last_heartbeats_;
  int silent_ticks_ = 0;
};

}  // namespace lunkeeper
