// Opening the store of files. It checks what is there before it makes anything: a directory that is not
// mounted, or has lost its catalogue, looks just like a new one.
#include "devices/array/tgt/file_store.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/tgt/backup_verify.h"
#include "devices/array/tgt/cache_id.h"
#include "devices/array/tgt/pool.h"

namespace lunkeeper {
namespace {

bool IsThere(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// A full pool has room for its catalogue all the same.
absl::StatusOr<std::unique_ptr<Catalogue>> OpenCatalogue(const Pool& pool, const std::string& array) {
  const auto open = [&] {
    return Catalogue::Open(pool.CataloguePath(), array, [&pool] { return pool.ballast().ReleaseSpace(); });
  };
  auto catalogue = open();
  if (absl::IsResourceExhausted(catalogue.status()) && pool.ballast().ReleaseSpace()) return open();
  return catalogue;
}

}  // namespace

absl::StatusOr<OpenedStore> OpenFileStore(const TgtArrayOptions& options, uint64_t remembered) {
  const std::string& directory = options.pool_dir;
  // Before Pool::Open, which makes what is missing: an empty array in the place of one that is not mounted
  // would tell its initiators "target not found" and the cluster that its volumes are deleted.
  if (remembered > 0 && !IsThere(directory + "/catalogue.db")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "open pool ", directory, ": it has no catalogue, but ", remembered,
        " changes of it are remembered: is ", directory,
        " mounted? If it is, restore catalogue.db; if the pool is meant to be a new one, remove ",
        options.seen_sequence_path));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Pool> pool, Pool::Open(directory));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, pool->ListFiles());
  // Without this check a lost catalogue would be made anew, and every volume's file removed as unknown.
  if (!files.empty() && !IsThere(pool->CataloguePath())) {
    return absl::FailedPreconditionError(absl::StrCat("open pool ", directory, ": it has ", files.size(),
                                                      " volumes but no catalogue; restore catalogue.db"));
  }
  RETURN_IF_ERROR(RemoveOldLog(directory));
  OpenedStore store;
  ASSIGN_OR_RETURN(store.catalogue, OpenCatalogue(*pool, options.name));
  ASSIGN_OR_RETURN(
      store.cache_id,
      ReadCacheId({.boot_id = options.boot_id_path, .pool = directory, .memory = options.mount_path}));
  store.images = std::move(pool);
  return store;
}

}  // namespace lunkeeper
