// What proves that a backup is all there: each file has the digest that the manifest says, and the catalogue,
// the manifest and the folder name the same images. The manifest alone would not do: one that has lost a line
// looks like one of fewer volumes. The catalogue is looked into last, when its own digest was right.
//
// A restored pool has the manifest until it is accepted. Its catalogue is compared once, before SQLite opens
// it and changes its head; the mark `opened` says that this was done. Its images are only measured: reading
// all of them may take hours, in which the pods wait.
#include "devices/array/tgt/backup_verify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/backup_catalogue.h"
#include "devices/array/tgt/backup_folder.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/image_blocks.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

absl::Status DataLoss(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat("backup: ", path, " ", what));
}

// A link is no file: a copy of the backup would have the link.
absl::Status VerifyFile(const std::string& path, const BackedUpFile& file,
                        const std::function<bool(uint64_t)>& watch) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0)
    return errno == ENOENT ? DataLoss(path, "is missing") : FileError("look at", path, errno);
  if (S_ISLNK(found.st_mode)) return DataLoss(path, "leads elsewhere: put the file itself there");
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  ASSIGN_OR_RETURN(const std::string digest, DigestFile(fd.get(), path, watch));
  const bool same = static_cast<uint64_t>(found.st_size) == file.size_bytes && digest == file.digest;
  return same ? absl::OkStatus()
              : DataLoss(path, "is not what was written: make another backup, and look at that disk");
}

absl::Status VerifyNoLog(const std::string& catalogue) {
  for (const char* suffix : kCatalogueLogs) {
    const std::string log = catalogue + suffix;
    struct stat file {};
    if (::stat(log.c_str(), &file) != 0 || file.st_size == 0) continue;
    return DataLoss(log, "was not written by it, and would change the catalogue: remove that file");
  }
  return absl::OkStatus();
}

// The catalogue, the list and the folder have the same images. The catalogue is what was written.
absl::Status VerifyNames(const std::string& folder, const BackupManifest& manifest) {
  ASSIGN_OR_RETURN(const auto rows, ListCatalogueImages(absl::StrCat(folder, "/", kCatalogueFile)));
  ASSIGN_OR_RETURN(const std::set<std::string> names, ListBackupImages(folder));
  for (const auto& [name, made] : rows)
    if (!manifest.files.contains(name))
      return DataLoss(absl::StrCat(folder, "/", kBackupManifest),
                      absl::StrCat("does not have ", name, ", which the catalogue has: make another backup"));
  for (const std::string& name : names)
    if (!rows.contains(name))
      return DataLoss(absl::StrCat(folder, "/", name),
                      "was not written by it: look at what it is, and take it out of there");
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyBackup(const std::string& folder, const BackupWatch& watch) {
  ASSIGN_OR_RETURN(const BackupManifest manifest, ReadBackupManifest(folder));
  const std::string what = absl::StrCat("backup in ", folder, ": "),
                    catalogue = absl::StrCat(folder, "/", kCatalogueFile);
  if (!manifest.whole)
    return absl::FailedPreconditionError(
        absl::StrCat(what, "it broke off; repeat `lunkeeper backup make` to finish it"));
  if (manifest.opened)
    return absl::FailedPreconditionError(absl::StrCat(
        what, "an agent has opened it as its pool, so its catalogue is no more what was written"));
  if (!manifest.files.contains(kCatalogueFile))
    return DataLoss(absl::StrCat(folder, "/", kBackupManifest),
                    "does not have catalogue.db: make another backup");
  BackupProgress progress{.image = {}, .images = manifest.files.size()};
  for (const auto& [name, file] : manifest.files) {
    progress.image = name;
    const auto watch_file = [&](uint64_t bytes) {
      progress.copied_bytes += bytes;
      return watch(progress);
    };
    RETURN_IF_ERROR(VerifyFile(absl::StrCat(folder, "/", name), file, watch_file));
    ++progress.done_images;
  }
  watch(progress);
  RETURN_IF_ERROR(VerifyNoLog(catalogue));
  return VerifyNames(folder, manifest);
}

absl::Status RemoveOldLog(const std::string& pool) {
  const auto manifest = ReadBackupManifest(pool);
  if (!manifest.ok()) return absl::IsNotFound(manifest.status()) ? absl::OkStatus() : manifest.status();
  if (manifest->opened) return absl::OkStatus();
  const std::string path = absl::StrCat(pool, "/", kCatalogueFile);
  const auto copied = manifest->files.find(kCatalogueFile);
  const absl::Status verified = copied == manifest->files.end()
                                    ? DataLoss(path, "is not listed")
                                    : VerifyFile(path, copied->second, [](uint64_t) { return true; });
  if (absl::IsDataLoss(verified))
    return absl::FailedPreconditionError(absl::StrCat(
        "open pool ", pool, ": it is a backup, but ", path,
        " is not the catalogue of it: empty the folder, and copy all of the backup there; or remove ", pool,
        "/", kBackupManifest, " if this is no backup"));
  RETURN_IF_ERROR(verified);
  for (const char* suffix : kCatalogueLogs) {
    const std::string log = path + suffix;
    if (::unlink(log.c_str()) != 0 && errno != ENOENT) return FileError("remove", log, errno);
  }
  RETURN_IF_ERROR(SyncDirectoryOf(path));
  FAIL_POINT("array.restore.log_removed");
  return MarkBackupOpened(pool);
}

absl::Status CheckRestoredImages(const std::string& pool) {
  ASSIGN_OR_RETURN(const BackupManifest manifest, ReadBackupManifest(pool));
  for (const auto& [name, file] : manifest.files) {
    const std::string path = absl::StrCat(pool, "/", name);
    struct stat found {};
    if (name == kCatalogueFile || (::lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
                                   static_cast<uint64_t>(found.st_size) >= file.size_bytes))
      continue;
    return absl::FailedPreconditionError(absl::StrCat("accept a restore: ", path,
                                                      " is missing, or smaller than the ", file.size_bytes,
                                                      " bytes in the backup; nothing was accepted: copy it "
                                                      "there again. To do without it, add the line `gone ",
                                                      name, "` to ", pool, "/", kBackupManifest));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
