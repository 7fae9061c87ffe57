// An array's store in Ceph: the images (rbd_store.h), and the catalogue as SQLite's file lunkeeper.ARRAY.db
// in the same pool, by Ceph's own VFS for SQLite. That VFS is a client of its own, and locks the file for one
// connection. The lock of a client that was shut out is broken; any other one is waited for: it is of an
// agent that writes no gateway's record, and ends some 30 s after that.
#include "devices/array/tgt/rbd_array_store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/open_portal.h"
#include "base/periodic.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/pool_file.h"
#include "devices/array/tgt/pool_lock.h"
#include "devices/array/tgt/rbd_store.h"
#include "devices/array/tgt/stop_tgtd.h"
#include "devices/array/tgt/unserved_starts.h"
#include "devices/cache_ids.h"

namespace lunkeeper {
namespace {

constexpr char kTgtdModule[] = "/usr/lib/tgt/backing-store/bs_rbd.so";

constexpr absl::Duration kLockExpires = absl::Seconds(35), kTgtdEnds = absl::Seconds(30);
// At the end of an agent that nobody waits for: the next one ends a tgtd that needs longer.
constexpr absl::Duration kEndsAtOnce = absl::Seconds(5);
constexpr absl::Duration kPeerAnswers = absl::Seconds(1);

// Of the objects that a file of the VFS consists of; it carries the lock.
std::string FirstPiece(const std::string& file) { return file + ".0000000000000000"; }

absl::Status CheckOptions(const TgtArrayOptions& options) {
  if (options.ceph.conf.find_first_of(",;") != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat("open array: the path ", options.ceph.conf, " has a comma or semicolon; move the file"));
  }
  if (::access(kTgtdModule, R_OK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("open array: tgtd has no rbd store (", kTgtdModule, "): apt install tgt-rbd"));
}

// Registers the VFS, as often as one likes, and gives it this pool's configuration and user. Its client,
// which has connected, and has not written.
absl::StatusOr<ClientAddress> PrepareSqlite(const CephPool& pool) {
  sqlite3* memory = nullptr;
  char* error = nullptr;
  int result = sqlite3_open(":memory:", &memory);
  if (result == SQLITE_OK) sqlite3_db_config(memory, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, nullptr);
  if (result == SQLITE_OK)
    result =
        sqlite3_load_extension(memory, pool.library().sqlite_extension, "sqlite3_cephsqlite_init", &error);
  sqlite3_close(memory);
  const std::string message = error == nullptr ? "" : error;
  sqlite3_free(error);
  if (result != SQLITE_OK) {
    return absl::FailedPreconditionError(absl::StrCat("open catalogue: load ",
                                                      pool.library().sqlite_extension, ": ", message,
                                                      "; apt install libsqlite3-mod-ceph"));
  }
  char* address = nullptr;
  const int connected = pool.library().cephsqlite_setcct(pool.library().rados_cct(pool.cluster()), &address);
  ClientAddress client = address == nullptr ? "" : address;
  std::free(address);
  if (connected < 0) return CephError("connect the catalogue", connected);
  if (client.empty()) return absl::InternalError("ceph: connect the catalogue: it does not say as whom");
  return client;
}

// Without this look SQLite would wait for a lock that is kept alive, for ever and without a word.
absl::Status TakeLock(const CephPool& pool, const std::string& object, const std::string& array,
                      const std::set<ClientAddress>& shut_out) {
  constexpr char kLock[] = "striper.lock";
  const SteadyDeadline deadline(kLockExpires);
  while (true) {
    ASSIGN_OR_RETURN(const CephPool::Locker holder, pool.FindLocker(object, kLock));
    if (holder.address.empty()) return absl::OkStatus();
    if (shut_out.contains(holder.address)) return pool.BreakLock(object, kLock, holder);
    if (deadline.IsOver()) {
      return absl::FailedPreconditionError(
          absl::StrCat("open array ", array, ": another agent serves it and has its catalogue open, at ",
                       holder.address, "; stop that one, or give this one a --name of its own"));
    }
    LogInfo("array", "waiting for the catalogue, which another agent has or had",
            {{"holder", holder.address}});
    absl::SleepFor(absl::Seconds(1));
  }
}

// As with files: a pool that has lost its catalogue must not become a new array, in which nobody knows the
// images.
absl::Status CheckCatalogue(const CephPool& pool, const RbdStore& images, const std::string& file,
                            uint64_t remembered, const TgtArrayOptions& options) {
  ASSIGN_OR_RETURN(const bool there, pool.HasObject(FirstPiece(file)));
  if (there) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, images.ListNames());
  if (remembered == 0 && names.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "open pool ", options.ceph.pool, ": it has no catalogue ", file, " of array ", options.name, ", but ",
      names.size(), " of its images, and ", remembered,
      " changes are remembered: is it the right pool? If it is, restore the catalogue; if the array is meant "
      "to be a new one, remove ",
      options.seen_sequence_path));
}

// A folder's own name, made at its first start, and the boot: a copy of the folder elsewhere is another
// gateway, and so is this host when it has been off.
absl::StatusOr<std::string> NameHolder(const TgtArrayOptions& options) {
  const std::string path = options.pool_dir + "/gateway", made = path + ".new";
  std::string folder, boot;
  std::ifstream(path) >> folder;
  if (folder.empty()) {
    folder = RandomHexDigits();
    std::ofstream(made) << folder << std::flush;
    if (::rename(made.c_str(), path.c_str()) != 0) return FileError("make", path, errno);
  }
  std::ifstream(options.boot_id_path) >> boot;
  if (!boot.empty()) return absl::StrCat(folder, ".", boot);
  return absl::InternalError(absl::StrCat("read ", options.boot_id_path, ": it is empty"));
}

// Its own tgtd would answer nodes with errors. Nothing of this process can be used again: its clients of Ceph
// are shut out for good, so the next agent is another process.
[[noreturn]] void EndAtOnce(const std::string& pool_dir, const absl::Status& why) {
  const std::string what =
      absl::IsPermissionDenied(why) ? "Ceph refuses this gateway" : "another gateway has taken the array";
  LogError("array", what + ": this one ends, and its tgtd with it", {{"why", std::string(why.message())}});
  const std::vector<UniqueFd> locks = KillTgtdsForGood(pool_dir, kEndsAtOnce);
  ::_exit(1);  // and the kernel gives the locks up only when no thread is left that could start a tgtd
}

// Says who serves once, and again when that is another one. A tgtd of this host is ended then too: it may
// have been this host's turn until a moment ago.
std::function<absl::Status(const absl::Status&)> StandBy(const TgtArrayOptions& options) {
  if (!options.ceph.stands_by) return nullptr;
  return [&options, said = std::string()](const absl::Status& lives) mutable -> absl::Status {
    if (!options.ceph.stands_by())
      return absl::CancelledError(absl::StrCat("open array ", options.name, ": stopped while it stood by"));
    if (said == lives.message()) return absl::OkStatus();
    said = std::string(lives.message());
    LogInfo("array", "this agent stands by", {{"why", said}});
    return KillTgtds(options.pool_dir, kTgtdEnds);
  };
}

// Where its tgtds serve, nodes' I/O goes on, and nobody can grant a volume or fence a node. For long that is
// worse than a takeover, but only if there is somebody to take the array: one that stands by counts while the
// record is renewed. The tgtds end first. Once they are shut out, nodes would get errors from them, and not
// go on elsewhere.
absl::Status LeaveToStandby(GatewayLease& lease, const TgtArrayOptions& options,
                            const UnservedStarts& starts) {
  ASSIGN_OR_RETURN(const std::set<std::string> standbys, lease.ListStandbys());
  if (standbys.empty()) return absl::OkStatus();
  starts.NoteGivenAway();
  RETURN_IF_ERROR(KillTgtds(options.pool_dir, kTgtdEnds));
  RETURN_IF_ERROR(lease.ReleaseArray());
  return absl::UnavailableError(absl::StrCat(
      "open array ", options.name, ": this agent has ended at each start before it answered calls, ",
      "and leaves the array and its nodes to the one that stands by on host ", *standbys.begin()));
}

absl::StatusOr<std::unique_ptr<GatewayLease>> TakeLease(const CephPool& pool,
                                                        const TgtArrayOptions& options) {
  ASSIGN_OR_RETURN(const std::string holder, NameHolder(options));
  // This host's tgtds are shut out if another gateway has had the array since. Nodes would get errors from
  // them, and go on elsewhere when nobody answers.
  ASSIGN_OR_RETURN(const std::optional<GatewayRecord> record, ReadGatewayRecord(pool, options.name));
  const bool own = record && record->holder == holder;
  if (record && !own) RETURN_IF_ERROR(KillTgtds(options.pool_dir, kTgtdEnds));
  // What nodes have goes on, whatever becomes of this agent.
  const bool serves = own && DoTgtdsServe(options.pool_dir, options.portals);
  const UnservedStarts starts(options.pool_dir);
  const bool gives_away = own && !serves && starts.Count() >= UnservedStarts::kMost;
  if (gives_away)
    LogWarn("array", "this agent has ended at each start before it answered calls, and gives the array away",
            {{"array", options.name}, {"starts", absl::StrCat(starts.Count())}});
  ASSIGN_OR_RETURN(
      std::unique_ptr<GatewayLease> lease,
      GatewayLease::TakeArray(
          pool,
          {.array = options.name,
           .holder = holder,
           .host = HostName(),
           .takeover_after = options.ceph.takeover_after,
           .stand_by = StandBy(options),
           .gives_away = gives_away,
           .on_lost = [directory = options.pool_dir](const absl::Status& why) { EndAtOnce(directory, why); },
           // One that stands by has its portal closed.
           .list_serving = [peers = options.peer_portals] { return ListOpenPortals(peers, kPeerAnswers); },
           .on_started = [starts] { starts.ForgetStarts(); }}));
  FAIL_POINT("array.takeover.taken");
  const bool goes_on = serves && lease->tgtds_go_on();
  if (goes_on && starts.IsTimeToLeave()) RETURN_IF_ERROR(LeaveToStandby(*lease, options, starts));
  starts.CountUp();
  if (!goes_on) lease->ReleaseUnlessServed();
  RETURN_IF_ERROR(lease->ShutOut());
  FAIL_POINT("array.takeover.shut_out");
  if (!lease->tgtds_go_on()) RETURN_IF_ERROR(KillTgtds(options.pool_dir, kTgtdEnds));
  lease->times().EndPhase("shut_out");
  return lease;
}

// Not at once: the gateway before may just be ending. One that stands by has its portal closed.
std::unique_ptr<Periodic> WatchPeers(GatewayLease& lease, const TgtArrayOptions& options) {
  const auto look = [&lease, peers = options.peer_portals, looks = 0]() mutable {
    const bool first = looks++ == 0;
    const std::set<std::string> open = first ? std::set<std::string>() : ListOpenPortals(peers, kPeerAnswers);
    if (!open.empty() && lease.ConfirmHeld().ok())
      LogWarn("array", "a tgtd of another gateway lets nodes in: end it with `lunkeeper stop-tgtd`",
              {{"portals", absl::StrJoin(open, " ")}});
  };
  return std::make_unique<Periodic>(options.ceph.peers_every, look);
}

}  // namespace

// The order: what needs no cluster, the cluster, this host's folder, and only then what writes to the pool.
// So a start that is refused has made nothing there. gateway_lease.cc says why the rest is in this order. The
// catalogue is looked for again when the array is taken: an agent may have stood by for months.
absl::StatusOr<OpenedStore> OpenRbdStore(const TgtArrayOptions& options, uint64_t remembered) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(std::unique_ptr<CephPool> pool, CephPool::Connect(options.ceph));
  RETURN_IF_ERROR(MakeDirectory(options.pool_dir));
  RETURN_IF_ERROR(MakeDirectory(options.pool_dir + "/heartbeat_luns"));
  ASSIGN_OR_RETURN(UniqueFd lock, LockPool(options.pool_dir));
  const CephPool& connected = *pool;
  auto images = std::make_unique<RbdStore>(std::move(pool), options.name, std::move(lock));
  const std::string file = absl::StrCat("lunkeeper.", options.name, ".db");
  RETURN_IF_ERROR(CheckCatalogue(connected, *images, file, remembered, options));
  ASSIGN_OR_RETURN(std::unique_ptr<GatewayLease> lease, TakeLease(connected, options));
  RETURN_IF_ERROR(CheckCatalogue(connected, *images, file, remembered, options));
  RETURN_IF_ERROR(TakeLock(connected, FirstPiece(file), options.name, lease->shut_out()));
  ASSIGN_OR_RETURN(const ClientAddress catalogue, PrepareSqlite(connected));
  RETURN_IF_ERROR(lease->BeginServing(catalogue));
  FAIL_POINT("array.takeover.named");
  OpenedStore store;
  store.lease = lease.get();
  images->KeepLease(std::move(lease));
  ASSIGN_OR_RETURN(
      store.catalogue,
      Catalogue::Open(absl::StrCat("file:///", options.ceph.pool, ":/", file, "?vfs=ceph"), options.name));
  FAIL_POINT("array.takeover.catalogue_open");
  store.lease->times().EndPhase("catalogue");
  LogInfo("array", "the catalogue is open");
  store.images = std::move(images);
  store.peers = WatchPeers(*store.lease, options);
  store.cache_id = kNothingCached;
  return store;
}

}  // namespace lunkeeper
