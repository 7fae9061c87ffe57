#pragma once
// The embedded array: files in a pool directory, served by tgtd over iSCSI, with the catalogue beside them.
//
// OpenTgtArray takes the pool (one process at a time), finishes or undoes what a crash cut short, brings tgtd
// up with every granted target in it, and only then serves. tgtd runs in a session of its own and outlives
// this program; a later OpenTgtArray takes it over with its sessions. Needs root. Thread-safe. It
// outlives the Arrays it has handed out.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/array.h"
#include "devices/array/gateway_state.h"
#include "devices/array/pool_identity.h"
#include "devices/array/tgt/array_handover.h"
#include "devices/array/tgt/ceph_options.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/machine_shares.h"
#include "devices/array/tgt/pool_backup.h"
#include "devices/array/tgt/pool_room.h"
#include "devices/array/tgt/reassignment.h"

namespace lunkeeper {

struct TgtArrayOptions {
  std::string name = "array";  // [a-z0-9-], at most 32: part of every id and target name, and for life
  std::string pool_dir;        // absolute, without commas; on XFS or btrfs for snapshots of volumes in use
  CephOptions ceph;  // with a pool: volumes and catalogue are there, and `pool_dir` is this host's own folder
  // address:port each, what tgtd listens on and initiators connect to: one, or one for each network.
  std::vector<std::string> portals;
  // Where nodes find the array when another host serves it: address:port each.
  std::vector<std::string> peer_portals = {};
  PoolLimits limits;
  int control_port = 1;  // tgtd's management socket, 0 to 32767; one array each
  // How many tgtds new grants are spread over, 1 to kMostTgtds; the further ones have the control ports and
  // the portals' ports that follow (tgt_servers.h).
  int tgtds = 1;
  std::string tgtd_binary = "/usr/sbin/tgtd";
  int tgtd_io_threads = 0;       // for each LUN; 0: half as many as there are processors, 1 to 4
  std::string tgtd_output_path;  // FIFOs, made if need be, from this name on; empty: messages are lost
  // Remembers the highest sequence seen, outside the pool, so that a pool restored from a backup is noticed.
  // Empty: not.
  std::string seen_sequence_path;
  // Remembers, outside the pool too, which mount of it was seen (cache_id.h). Empty: not.
  std::string mount_path;
  std::string boot_id_path = "/proc/sys/kernel/random/boot_id";
  // How long Release and Fence wait for commands to be over.
  absl::Duration drain_timeout = absl::Seconds(30);
  // How long a create waits for a copy, where the pool cannot reflink, before it says ABORTED and goes on
  // behind.
  absl::Duration copy_wait = absl::Seconds(10);
  // Between two searches for heartbeat LUNs that nobody writes to.
  absl::Duration tidy_heartbeat_luns_every = absl::Hours(1);
  absl::Duration accounts_kept_for = absl::Hours(1);  // in tgtd, of machines that have no grant any more
  ShareLimits shares = {};
};

// What a storage host's administrator watches, of all clusters together.
struct GrantUse {
  std::vector<uint64_t> grants_of_tgtds;                 // by its number; also those being released
  uint64_t releasing = 0;                                // their nodes' commands are not over
  absl::Duration oldest_release = absl::ZeroDuration();  // since this program saw it first
  uint64_t tgtd_deaths = 0;                              // since this program began
  uint64_t refused_logins = 0;                           // likewise; as TgtdOutput::refused_logins
  uint64_t ended_connections = 0;                        // likewise; of SurplusConnections
  // Of the grants' nodes, now. Nothing: not every tgtd has answered at once.
  std::optional<uint64_t> sessions;
};

class TgtArray {
 public:
  virtual ~TgtArray() = default;

  // What `cluster` sees. Every view of one cluster is the same.
  virtual std::unique_ptr<Array> ForCluster(const ClusterId& cluster) = 0;
  // How many changes the catalogue has seen; rises for ever.
  virtual uint64_t sequence() const = 0;
  // OK when the array serves; else UNAVAILABLE with what to do, which is what every call then answers.
  virtual absl::Status CheckServing() const = 0;
  // OK if no other host served the array when the call began; else what a call answered may be old. Always OK
  // for an array of files that serves: one of an older copy that nobody has accepted is not the array.
  virtual absl::Status ConfirmServing() const = 0;
  // An operator says that a pool older than remembered, or one from a backup, is to be served as it is: it is
  // the newest copy from then on (pool_identity.h). OK when the array serves already.
  virtual absl::Status AcceptRestore() = 0;
  // None before the array serves: a pool that nobody has accepted yet is no copy of the array's.
  virtual std::optional<PoolIdentity> identity() const = 0;
  // Somebody knows this copy of the pool. One that is accepted here later is newer than it, whatever the
  // clocks of both hosts say.
  virtual void NoteCopy(const PoolIdentity& known) = 0;
  virtual absl::StatusOr<PoolUse> MeasureUse() const = 0;
  // The files of the pool that the catalogue does not know. They are set aside in orphans/, and kept until an
  // operator deletes them; as in Pool.
  virtual absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const = 0;
  virtual absl::Status DeleteOrphan(const std::string& name) = 0;
  // Copies the pool, while it serves, into a folder of another file system, as BackUpPool says. ABORTED:
  // another backup is being made. FAILED_PRECONDITION: also if volumes are on Ceph.
  virtual absl::Status BackUp(const std::string& folder, const BackupWatch& watch) = 0;
  // Gives the array to another gateway, as HandOverArray says: OK: this process is to end, without the
  // destructor, which would wait for what is shut out. ABORTED: it is under way. FAILED_PRECONDITION: also if
  // volumes are files.
  virtual absl::Status HandOver(const HandoverWatch& watch) = 0;
  // As ReassignCluster says.
  virtual absl::StatusOr<Reassigned> Reassign(const Reassignment& asked) = 0;
  // UNAVAILABLE: tgtd hangs, or is being started again; says what to do. The array's calls are tried all the
  // same.
  virtual absl::Status CheckTgtd() const = 0;
  // Of each tgtd, by its number.
  virtual std::vector<absl::Status> CheckEachTgtd() const = 0;
  virtual absl::StatusOr<GrantUse> MeasureGrants() const = 0;
  // How this gateway came to serve. Nothing: it does not serve yet, or the volumes are files.
  virtual std::optional<GatewayState> FindGateway() const = 0;
  // As GatewayLease::ListStandbys; none if the volumes are files.
  virtual absl::StatusOr<std::set<std::string>> ListStandbys(
      const std::function<bool()>& abandoned) const = 0;
};

// FAILED_PRECONDITION: the pool is another process's or another array's, or is remembered or has volumes but
// has no catalogue, or a tgtd that is not on the control port serves it.
absl::StatusOr<std::unique_ptr<TgtArray>> OpenTgtArray(const TgtArrayOptions& options);

}  // namespace lunkeeper
