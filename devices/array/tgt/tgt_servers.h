#pragma once
// The tgtds of an array, each with the targets that it serves. One is enough for some hundred grants; what a
// tgtd needs for a grant, a release or a login grows with the square of the number of its targets
// (docs/tgt.md).
//
//   tgtd 0: the control port and the portals as they are set; heartbeat LUNs, and its share of the grants
//   tgtd n: control port + n, each portal's port + n, a lock file and messages of its own; its share
//
// A grant belongs to one tgtd from its row's first to its last moment (GrantRow::tgtd), so a fence drains a
// grant in one place. More may run than are asked for: a tgtd goes on while it has a grant, or lives.
// Thread-safe. What it is made of outlives it.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/grant_targets.h"
#include "devices/array/tgt/image_reopener.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/targets.h"
#include "devices/array/tgt/tgt_daemon.h"
#include "devices/array/tgt/tgtd_pause.h"
#include "devices/array/tgt/volume_gates.h"

namespace lunkeeper {

// The portal of tgtd `number`. INVALID_ARGUMENT: it has no port, or there is no port so high.
absl::StatusOr<std::string> PortalOfTgtd(const std::string& portal, int number);

struct TgtServersOptions {
  std::string array, cache_id;                 // as in TargetTableOptions
  std::string directory;                       // of the locks
  TgtDaemonOptions first;                      // of tgtd 0, but for the lock
  std::vector<std::string> peer_portals = {};  // of tgtd 0, on other hosts
  int tgtds = 1;                               // for new grants
  absl::Duration drain_timeout;
  absl::Duration accounts_kept_for = absl::Hours(1);  // as in TargetTableOptions
  // Called for tgtd 0: the targets that are not of grants, before it makes its targets again; and its tick.
  std::function<std::vector<Generation>()> list_heartbeat_luns;
  std::function<void()> tick;
};

class TgtServers {
 public:
  static absl::StatusOr<std::unique_ptr<TgtServers>> Make(const TgtServersOptions& options,
                                                          Catalogue& catalogue, const ImageStore& images,
                                                          VolumeGates& gates);
  ~TgtServers();

  // Brings all up, at the same time, as TgtDaemon::StartServing does. A further one that is UNAVAILABLE takes
  // no other along: it is tried again and again, and CheckAnswering says why it fails. After an error it may
  // be repeated, and leaves alone what serves.
  absl::Status StartServing();
  // Ends the threads that look after the tgtds and their images, for good (TgtDaemon::StopWatching).
  void StopWatching();
  // After that, for tgtds that are about to end: closes all portals, ends the sessions of all volumes, and
  // closes their images after the last command. All at the same time. DEADLINE_EXCEEDED, or another error:
  // not all are closed.
  absl::Status CloseVolumes(absl::Duration within);
  // UNAVAILABLE: one that has such a grant was not serving by the deadline.
  absl::Status WaitReady(const std::vector<GrantRow>& grants, absl::Time deadline);
  // The tgtds that new grants go to: of the ones asked for, all that serve and answer. While there is none it
  // waits for the first. UNAVAILABLE: that was not serving by the deadline.
  absl::StatusOr<std::vector<int>> ListForNewGrants(absl::Time deadline) const;
  // UNAVAILABLE: one of them is being started again, or hangs; the message says what to do.
  absl::Status CheckAnswering() const;
  // The same of each, by its number.
  std::vector<absl::Status> CheckEach() const;
  // Holds all of them. They are held together from the last one's beginning to the first one's end.
  absl::StatusOr<std::vector<std::unique_ptr<TgtdPause>>> PauseTgtds() const;
  // Of all, or an error: an array that shows a part of its sessions would look like one whose nodes are gone.
  absl::StatusOr<std::vector<TgtStatistics>> ReadStatistics() const;
  // Of each, by its number, or why it cannot be asked. All are asked at the same time, and a further one has
  // half a second: it must not make the looks at all others late.
  std::vector<absl::StatusOr<std::vector<TgtStatistics>>> ReadStatisticsOfEach() const;
  std::vector<uint64_t> CountGrants(const std::vector<GrantRow>& grants) const;  // of each, by its number
  // Of these grants. For figures: nothing where a tgtd hangs, or does not answer within half a second.
  std::optional<uint64_t> CountSessions(const GrantsByTarget& grants) const;
  uint64_t CountDeaths() const;
  uint64_t CountRefusedLogins() const;  // as TgtdOutput
  uint64_t CountEndedConnections() const;
  absl::Duration OldestRelease() const;

  // The tgtd of a grant, or of a heartbeat LUN.
  TargetTable& TableOf(const GrantRow& grant);
  GrantTargets& TargetsOf(const GrantRow& grant);
  TgtDaemon& first();
  // As in GrantTargets, for grants of any tgtd. OK: all are drained and gone.
  absl::Status FinishReleasing(const std::vector<GrantRow>& grants, absl::Time deadline);

 private:
  struct Server;
  explicit TgtServers(int wanted);
  Server& ServerOf(const GrantRow& grant);

  const int wanted_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<ImageReopener> reopener_;  // last: its thread uses the others
};

}  // namespace lunkeeper
