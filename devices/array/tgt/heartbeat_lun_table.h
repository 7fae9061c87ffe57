#pragma once
// The heartbeat LUNs of a tgt array (fence_control.h): a small file of this host and a target for each, and a
// look at every file four times a second.
//
// The same thread also maintains the LUNs. It serves them again after tgtd was restarted, writes the fence in
// force into the notice on each, and deletes a LUN that no node has written to for a week. So heartbeat LUNs
// never delay the volumes' targets. Thread-safe. What it is made of outlives it; StopLooking before the
// daemon goes.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/heartbeat_lun_files.h"
#include "devices/array/tgt/heartbeat_watch.h"
#include "devices/array/tgt/targets.h"
#include "devices/array/tgt/tgt_daemon.h"

namespace lunkeeper {

class HeartbeatLunTable {
 public:
  // `directory` is for their files, and there. `targets` and `daemon`: of the array's first tgtd.
  // `tidy_every`: between two searches for unused LUNs; one is deleted by the second that finds it.
  HeartbeatLunTable(Catalogue& catalogue, std::string directory, TargetTable& targets, TgtDaemon& daemon,
                    absl::Duration tidy_every)
      : catalogue_(catalogue),
        files_(std::move(directory)),
        targets_(targets),
        daemon_(daemon),
        tidy_every_(tidy_every) {}

  // Reads the catalogue's rows, and deletes files of other LUNs. Called once, before tgtd is started or taken
  // over.
  absl::Status LoadRows() ABSL_LOCKS_EXCLUDED(mu_);
  void StartLooking() {
    look_ = std::make_unique<Periodic>(kLookEvery, [this] { LookAtLuns(); });
  }
  void StopLooking() { look_.reset(); }

  // `secrets`: for one that has to be made.
  absl::StatusOr<Connection> OpenLun(const ClusterId& cluster, const HeartbeatLunRequest& request,
                                     const GrantSecrets& secrets) ABSL_LOCKS_EXCLUDED(serve_mu_, mu_);
  std::vector<LandedHeartbeat> ListHeartbeats(const ClusterId& cluster) ABSL_LOCKS_EXCLUDED(mu_);
  // For the restart of tgtd, while it does not serve: every LUN counts as not served, and when this returns
  // no target is being made. The numbers of the targets that may be there.
  std::vector<Generation> ServeAgain() ABSL_LOCKS_EXCLUDED(serve_mu_, mu_);

 private:
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(250);
  using Key = std::pair<ClusterId, NodeId>;
  struct HeartbeatLun {
    GrantRow row;
    HeartbeatWatch watch;
    UniqueFd file;
    bool served = false;
    bool was_unused = false;  // at the last search, and served since
  };
  using HeartbeatLuns = std::map<Key, HeartbeatLun>;

  static void LookAt(HeartbeatLun& lun, HeartbeatWatch::Time now);
  static Key KeyOf(const GrantRow& row) { return {row.cluster, row.node}; }
  void InsertRow(const GrantRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<GrantRow> ChangeKey(GrantRow row, const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsKnown(const GrantRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ServeLun(const GrantRow& row) ABSL_LOCKS_EXCLUDED(serve_mu_, mu_);
  absl::Status ForgetLun(const GrantRow& row) ABSL_LOCKS_EXCLUDED(serve_mu_, mu_);
  void LookAtLuns() ABSL_LOCKS_EXCLUDED(serve_mu_, mu_);
  // Returns the rows whose LUN is not served.
  std::vector<GrantRow> LookAtFiles() ABSL_LOCKS_EXCLUDED(mu_);
  // Which files could not be written, and why; no other one waits for that.
  using NoticeErrors = std::map<Key, absl::Status>;
  absl::StatusOr<NoticeErrors> UpdateFenceNotices() ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<GrantRow> ListUnused() ABSL_LOCKS_EXCLUDED(mu_);
  static bool IsUnused(const HeartbeatLun& lun);
  void ReportTrouble(const absl::Status& status);

  Catalogue& catalogue_;
  const HeartbeatLunFiles files_;
  TargetTable& targets_;
  TgtDaemon& daemon_;
  const absl::Duration tidy_every_;
  absl::Mutex serve_mu_;  // held while targets are made or taken down; before mu_
  absl::Mutex mu_;
  HeartbeatLuns heartbeat_luns_ ABSL_GUARDED_BY(mu_);  // one goes only while serve_mu_ is held too
  // The state of the catalogue by which every notice was right; 0: none.
  uint64_t noted_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  HeartbeatWatch::Time tidy_at_;    // when next; the looking thread's
  std::string trouble_;             // likewise: what was said last
  std::unique_ptr<Periodic> look_;  // last: it uses the others
};

}  // namespace lunkeeper
