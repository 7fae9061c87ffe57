#pragma once
// Keeps tgtd's targets in step with the catalogue's grants: a grant has an open target; one that is releasing
// is drained, its target deleted, and then its row. This work outlives the call that began it: what a call or
// a crash has left is carried to its end by RestoreTargets and by ReleaseLeftOvers.
//
//   row added --OpenTarget--> open --releasing--> draining --every command is over--> target gone, row gone
//
// There is one for each tgtd of the array, with that tgtd's grants alone; TgtServers chooses it.
// Thread-safe. Order of locks: an object lock (KeyedLock), then a gate, then the catalogue; nobody waits for
// tgtd to come back while inside a gate.

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/gated_questions.h"
#include "devices/array/tgt/held_targets.h"
#include "devices/array/tgt/image_questions.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/targets.h"
#include "devices/array/tgt/volume_gates.h"

namespace lunkeeper {

class GrantTargets {
 public:
  // `drain_timeout`: how long ReopenLun, or a restart of tgtd, waits for commands to be over. `tgtd`: the
  // number of the one that `table` is of.
  GrantTargets(Catalogue& catalogue, const ImageStore& images, TargetTable& table, VolumeGates& gates,
               absl::Duration drain_timeout, int tgtd)
      : catalogue_(catalogue),
        images_(images),
        table_(table),
        gates_(gates),
        drain_timeout_(drain_timeout),
        tgtd_(tgtd),
        gated_questions_(catalogue, images) {}

  // Makes the target of a grant, unless it is being released. The caller is inside the gate. After an error
  // RetryHeld goes on with it.
  absl::Status OpenGranted(const GrantRow& grant);
  // The same once. `backing`: what the store has answered already; without it the store is asked, until the
  // grant is to be released.
  absl::Status OpenTarget(const GrantRow& grant, const std::optional<LunBacking>& backing = std::nullopt);
  // Has tgtd close a target's image and open it anew, so that the LUN is as large as the image, and Ceph has
  // another client. The caller is inside the gate. The store is asked first, until the grant is to be
  // released, or for `most`. An error: the LUN is as before, or RetryHeld restores it.
  absl::Status ReopenLun(const GrantRow& grant, absl::Duration most = absl::InfiniteDuration());
  // Drains and deletes these grants, which are releasing in the catalogue. DEADLINE_EXCEEDED: commands would
  // not end; the array goes on releasing them.
  absl::Status FinishReleasing(std::vector<GrantRow> grants, absl::Time deadline);
  // One attempt at each grant that is releasing. Called about once a second.
  void ReleaseLeftOvers() ABSL_LOCKS_EXCLUDED(releases_mu_);
  // How long ReleaseLeftOvers has been trying at the oldest of them; zero without one.
  absl::Duration OldestRelease() const ABSL_LOCKS_EXCLUDED(releases_mu_);
  // One attempt at each target that could not be made, after a restart of tgtd or by a call; those of grants
  // that are gone are deleted. Called about once a second.
  void RetryHeld();
  // Ends every target's sessions, and closes its image after its last command (TargetTable::CloseTarget).
  // DEADLINE_EXCEEDED: not all are closed.
  absl::Status CloseTargets(absl::Duration within);
  // After tgtd was started or taken over: makes every target exist that must, and finishes releases.
  // `heartbeat_luns` are targets that are not of grants. A volume whose image cannot be served, or does not
  // answer, costs the others no more than some seconds: its target says "try again", and RetryHeld goes on.
  // FAILED_PRECONDITION: tgtd may serve what the catalogue does not know; it has to be started afresh.
  absl::Status RestoreTargets(const std::vector<Generation>& heartbeat_luns, bool taken_over);

 private:
  // What the store was asked about, by the question's name.
  using Restorations = std::map<std::string, Restoration>;
  using Backing = absl::StatusOr<LunBacking>;

  // FAILED_PRECONDITION: one is of a generation that the catalogue has not given out yet.
  absl::Status CheckAccounts(const std::set<Generation>& accounts);
  void AskStore(const Restoration& restoration, Restorations& asked);
  Backing LookAtImage(const GrantRow& grant, const std::string& path);
  absl::Status RestoreAsked(Restorations asked);
  absl::Status RestoreTarget(const Restoration& restoration, const Backing& backing);
  absl::Status HoldTarget(const Restoration& restoration, const absl::Status& why);
  // False: its commands are not over, and the LUN is left as it is.
  absl::StatusOr<bool> CloseTarget(const GrantRow& grant);
  absl::StatusOr<bool> IsWanted(const GrantRow& grant);
  void TryOpenHeld(const Restoration& restoration, const Backing& backing);
  void DeleteHeld(const Restoration& restoration);
  // True when it is gone.
  absl::StatusOr<bool> TryRelease(const GrantRow& grant);
  // Of each; there is one at least. False: also of a grant that is not tried, since tgtd does not answer.
  std::vector<absl::StatusOr<bool>> TryReleaseAll(const std::vector<GrantRow>& grants);
  absl::Status DeleteDrainedGrants(const std::vector<GrantRow>& grants);

  Catalogue& catalogue_;
  const ImageStore& images_;
  TargetTable& table_;
  VolumeGates& gates_;
  const absl::Duration drain_timeout_;
  const int tgtd_;
  void NoteReleases(const std::vector<GrantRow>& releasing) ABSL_LOCKS_EXCLUDED(releases_mu_);

  using SteadyTime = std::chrono::steady_clock::time_point;
  mutable absl::Mutex releases_mu_;
  std::map<Generation, SteadyTime> releases_ ABSL_GUARDED_BY(releases_mu_);  // and when each was seen first
  HeldTargets held_;
  GatedQuestions gated_questions_;
  ImageQuestions<LunBacking> questions_;  // last: its threads use the others
};

}  // namespace lunkeeper
