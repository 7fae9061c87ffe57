#pragma once
// Keeps one tgtd running: takes over the one that answers on the control port, or starts one in a session of
// its own, so that it outlives this program. When it dies it is started again.
//
// The portals are opened only after `put_back` has made every target again: an initiator that receives
// "target not found" gives its device up for good. Until then a fresh tgtd listens nowhere (it is born with
// an ephemeral loopback port, which is closed before the first target exists). Thread-safe. One thread
// watches, and another one ticks, which may wait for a disk; the destructor joins both and leaves tgtd alone.
//
// A tgtd that hangs is reported, and not killed: the next one might wait for the same disk. What ends is a
// connection whose peer takes no answers (stuck_connections.h). And one that hangs on an image that may be
// silent alone is killed, and the next one goes on without that image (image_openings.h).

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "base/steady_mutex.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/image_openings.h"
#include "devices/array/tgt/stuck_connections.h"
#include "devices/array/tgt/surplus_connections.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"
#include "devices/array/tgt/tgtd_output.h"
#include "devices/array/tgt/tgtd_pause.h"

namespace lunkeeper {

// How long a call waits for tgtd, which may just be started again.
constexpr absl::Duration kReadyTimeout = absl::Seconds(10);
// A tgtd that has not answered on its management socket for so long counts as hanging. Its one thread for
// that does no disk I/O, and is the one that speaks to initiators.
constexpr absl::Duration kHangsAfter = absl::Seconds(10);

struct TgtDaemonOptions {
  int control_port = 1;
  std::vector<std::string> portals;  // address:port each; one at least
  std::string binary = "/usr/sbin/tgtd";
  int io_threads = 0;       // for each LUN; 0: half as many as there are processors, 1 to 4
  std::string output_path;  // of the TgtdOutput
  std::string lock_path;    // of the TgtdLock
};

class TgtDaemon {
 public:
  // Makes every target that must exist exist, and no other. `taken_over`: tgtd has run before, sessions may
  // be alive. FAILED_PRECONDITION: tgtd cannot be taken over; it is killed and a fresh one is started.
  using PutBack = std::function<absl::Status(bool taken_over)>;
  // Called about once a second while tgtd is well; never beside PutBack.
  using Tick = std::function<void()>;
  // Called just before tgtd is started, while its lock proves that none runs. Answers at once.
  using Gone = std::function<void()>;

  // `client`, which outlives it, is for the tgtd that is found or started, and for no other's answers; so is
  // `openings`, which may be null.
  TgtDaemon(TgtDaemonOptions options, TgtClient& client, ImageOpenings* openings, PutBack put_back, Tick tick,
            Gone gone = nullptr);
  ~TgtDaemon() { StopWatching(); }
  TgtDaemon(const TgtDaemon&) = delete;
  TgtDaemon& operator=(const TgtDaemon&) = delete;

  // Brings tgtd up, the targets back and the portal open, and watches from then on. Once.
  // FAILED_PRECONDITION: another tgtd serves the pool, or the one that answers serves another.
  absl::Status StartServing();
  // After that has failed with `why`, in which case nothing watches yet: goes on trying, as with a tgtd that
  // died. Once.
  void KeepTrying(const absl::Status& why);
  // Ends the threads and leaves tgtd as it is, for good: what becomes of it is the caller's from then on. Not
  // beside another call of it, nor beside StartServing.
  void StopWatching();
  absl::Status WaitReady(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);  // UNAVAILABLE: not serving by then
  // UNAVAILABLE: tgtd is being started again, or hangs; the message says what to do. Answers at once.
  absl::Status CheckAnswering() const ABSL_LOCKS_EXCLUDED(mu_);
  // All of them while that is not known, or none is. An address that is not there may be another host's, and
  // what is not open must not be said to nodes.
  std::vector<std::string> ListOpenPortals() const ABSL_LOCKS_EXCLUDED(mu_);
  // Holds tgtd for a moment (tgtd_pause.h), which is no hang. UNAVAILABLE: it is being started again, say.
  absl::StatusOr<std::unique_ptr<TgtdPause>> PauseTgtd() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t CountDeaths() const ABSL_LOCKS_EXCLUDED(mu_);  // of tgtd, since StartServing()
  uint64_t CountRefusedLogins() const { return output_.refused_logins(); }
  uint64_t CountEndedConnections() const { return connections_.ended(); }

 private:
  struct Process {
    pid_t pid = 0;
    UniqueFd handle;  // a pidfd: readable when the process is gone with all its threads
    bool taken_over = false;
  };
  absl::StatusOr<Process> FindRunning();
  absl::StatusOr<Process> FindOrSpawn();
  void EndStuckUntilItAnswers();
  absl::Status BringUp();
  absl::Status PutTargetsBack() ABSL_LOCKS_EXCLUDED(targets_mu_);
  absl::Status CloseOtherPortals();
  absl::Status OpenPortals();
  bool HangsOnImage(const absl::Status& trouble);
  bool EndSilentHolder(const absl::Status& trouble);
  void KillTgtd();
  void BeginWatching();
  void WatchTgtd();
  void RunTick() ABSL_LOCKS_EXCLUDED(mu_, targets_mu_);
  void LookWhetherItAnswers() ABSL_LOCKS_EXCLUDED(mu_);
  bool OpenMissingPortals(const std::vector<std::string>& open) ABSL_LOCKS_EXCLUDED(mu_);
  bool NoteShut(const std::string& portal, bool shut) ABSL_LOCKS_EXCLUDED(mu_);
  void SetReady(bool ready) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteTrouble(const absl::Status& up) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeingStarted() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const TgtDaemonOptions options_;
  const PutBack put_back_;
  const Tick tick_;
  const Gone gone_;
  TgtClient& client_;
  ImageOpenings* const openings_;
  const TgtdLock lock_;
  TgtdOutput output_;               // used as process_ is
  SurplusConnections connections_;  // likewise
  StuckConnections stuck_;          // likewise
  UniqueFd stop_;                   // an eventfd
  Process process_;                 // StartServing(), then the watching thread
  std::thread watcher_;
  absl::Mutex targets_mu_;  // held by PutBack and Tick, for long
  std::optional<Periodic> ticker_;
  mutable SteadyMutex mu_;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
  pid_t served_by_ ABSL_GUARDED_BY(mu_) = 0;
  UniqueFd served_handle_ ABSL_GUARDED_BY(mu_);  // of served_by_: a copy of the handle in process_
  uint64_t deaths_ ABSL_GUARDED_BY(mu_) = 0;
  std::string trouble_ ABSL_GUARDED_BY(mu_);  // why it could not be started again; empty: it could
  std::set<std::string> shut_portals_ ABSL_GUARDED_BY(mu_);  // which could not be opened, as was logged
  std::chrono::steady_clock::time_point answered_, opened_;  // the watching thread's
};

}  // namespace lunkeeper
