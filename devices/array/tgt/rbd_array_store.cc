// An array's store in Ceph: the images (rbd_store.h), and the catalogue as SQLite's file lunkeeper.ARRAY.db
// in the same pool, by Ceph's own VFS for SQLite. That VFS is a client of its own. It locks the file for one
// connection; the lock of a program that was killed ends after some 30 s, for which the next start waits.
#include "devices/array/tgt/rbd_array_store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"
#include "devices/array/tgt/pool_lock.h"
#include "devices/array/tgt/rbd_store.h"
#include "devices/cache_ids.h"

namespace lunkeeper {
namespace {

constexpr char kTgtdModule[] = "/usr/lib/tgt/backing-store/bs_rbd.so";

constexpr absl::Duration kLockExpires = absl::Seconds(35);

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

// Registers the VFS, as often as one likes, and gives it this pool's configuration and user.
absl::Status PrepareSqlite(const CephPool& pool) {
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
  std::free(address);
  return connected < 0 ? CephError("connect the catalogue", connected) : absl::OkStatus();
}

// One that was killed keeps its lock for some 30 s. Without this look SQLite would wait for a lock that is
// kept alive, for ever and without a word. Two agents that both find no lock are kept apart by the lock
// itself.
absl::Status WaitForLock(const CephPool& pool, const std::string& object, const std::string& array) {
  const absl::Time deadline = absl::Now() + kLockExpires;
  while (true) {
    ASSIGN_OR_RETURN(const std::string holder, pool.FindLocker(object, "striper.lock"));
    if (holder.empty()) return absl::OkStatus();
    if (absl::Now() > deadline) {
      return absl::FailedPreconditionError(
          absl::StrCat("open array ", array, ": another agent serves it and has its catalogue open, at ",
                       holder, "; stop that one, or give this one a --name of its own"));
    }
    LogInfo("array", "waiting for the catalogue, which another agent has or had", {{"holder", holder}});
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

}  // namespace

// The order: what needs no cluster, the cluster, this host's folder, and only then what writes to the pool.
// So a start that is refused has made nothing there.
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
  RETURN_IF_ERROR(WaitForLock(connected, FirstPiece(file), options.name));
  RETURN_IF_ERROR(PrepareSqlite(connected));
  OpenedStore store;
  ASSIGN_OR_RETURN(
      store.catalogue,
      Catalogue::Open(absl::StrCat("file:///", options.ceph.pool, ":/", file, "?vfs=ceph"), options.name));
  store.images = std::move(images);
  store.cache_id = kNothingCached;
  return store;
}

}  // namespace lunkeeper
