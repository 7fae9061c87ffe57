// A path from an orchestrator names a place in a tree that pods can partly write to, so a symlink at its last
// component could lead anywhere on the host: it is never followed. Its parents are kubelet's own directories,
// and may be symlinks by the administrator's choice; they are resolved, because the mount table has resolved
// paths. Nothing is opened for reading at the last component either: a dead mount there would block for ever,
// and O_PATH does not touch the file system.
#include "node/paths.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

absl::Status InvalidPath(const char* field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

std::string QuotePath(const std::string& path) { return absl::StrCat("\"", path, "\""); }

// The mode of what is there, symlinks not followed; 0: nothing.
mode_t ModeAt(const std::string& path) {
  const UniqueFd at(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found = {};
  if (!at || ::fstat(at.get(), &found) != 0) return 0;
  return found.st_mode;
}

}  // namespace

absl::Status CheckPath(const std::string& path, const char* field) {
  if (path.empty()) return InvalidPath(field, "is required");
  if (path.size() >= PATH_MAX) return InvalidPath(field, "is longer than 4095 bytes");
  if (path[0] != '/') return InvalidPath(field, "must be an absolute path");
  if (std::any_of(path.begin(), path.end(), [](char c) { return absl::ascii_iscntrl(c); })) {
    return InvalidPath(field, "has control characters");
  }
  bool names_something = false;
  // A kernel resolves . and .. after symlinks; a string comparison with the mount table cannot.
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "." || part == "..")
      return InvalidPath(field, absl::StrCat(QuotePath(path), " must not have . or .. in it"));
    if (part.size() > NAME_MAX) return InvalidPath(field, "has a part longer than 255 bytes");
    names_something = names_something || !part.empty();
  }
  if (!names_something) return InvalidPath(field, "must not be the root directory");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResolvePath(const std::string& path, const char* field) {
  RETURN_IF_ERROR(CheckPath(path, field));
  const size_t end = path.find_last_not_of('/') + 1;
  const size_t slash = path.rfind('/', end - 1);
  const std::string parent = slash == 0 ? "/" : path.substr(0, slash);
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(parent.c_str(), nullptr), &::free);
  if (real == nullptr) {
    if (errno == ENOENT)
      return absl::NotFoundError(absl::StrCat(field, ": ", QuotePath(parent), " does not exist"));
    return InvalidPath(field, absl::StrCat(QuotePath(parent), " is not a directory that can be entered"));
  }
  const std::string resolved = real.get();
  return absl::StrCat(resolved == "/" ? "" : resolved, "/", path.substr(slash + 1, end - slash - 1));
}

absl::Status RequireDirectory(const std::string& path, const char* field) {
  const mode_t mode = ModeAt(path);
  if (S_ISDIR(mode)) return absl::OkStatus();
  if (mode == 0)
    return InvalidPath(field, absl::StrCat(QuotePath(path), " does not exist; the orchestrator makes it"));
  return InvalidPath(field, absl::StrCat(QuotePath(path), " is not a directory"));
}

absl::StatusOr<bool> MakeTarget(const std::string& path, PathKind kind) {
  const bool directory = kind == PathKind::kDirectory;
  // Both fail with EEXIST if something is there, so what was there before is never mistaken for ours.
  const int made = directory
                       ? ::mkdir(path.c_str(), 0750)
                       : ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (made >= 0) {
    if (!directory) ::close(made);
    return true;
  }
  if (errno == ENOENT) {
    return InvalidPath("target_path", absl::StrCat("the parent of ", QuotePath(path), " does not exist"));
  }
  if (errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("target_path: cannot make ", QuotePath(path)));
  // Mesos makes every target as a directory, also that of a raw device. An empty one gives way to the file;
  // one that is mounted or holds files does not (EBUSY, ENOTEMPTY).
  const mode_t mode = ModeAt(path);
  if (!directory && S_ISDIR(mode) && ::rmdir(path.c_str()) == 0) return MakeTarget(path, kind);
  if (directory ? S_ISDIR(mode) : (S_ISREG(mode) || S_ISBLK(mode))) return false;
  return InvalidPath("target_path", absl::StrCat(QuotePath(path), " is there and is not a ",
                                                 directory ? "directory" : "file"));
}

absl::Status RemoveTarget(const std::string& path) {
  const mode_t mode = ModeAt(path);
  if (mode == 0) return absl::OkStatus();
  if (!S_ISDIR(mode) && !S_ISREG(mode)) {
    return InvalidPath("target_path",
                       absl::StrCat(QuotePath(path), " is neither a directory nor a file; it is left there"));
  }
  // Neither call removes what is mounted (EBUSY) or has contents.
  const int removed = S_ISDIR(mode) ? ::rmdir(path.c_str()) : ::unlink(path.c_str());
  if (removed == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno == ENOTEMPTY || errno == EEXIST) {
    return absl::FailedPreconditionError(
        absl::StrCat("target_path: ", QuotePath(path),
                     " has files in it that are not on the volume; move them away, then try again"));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("target_path: cannot remove ", QuotePath(path)));
}

bool PathExists(const std::string& path) { return ModeAt(path) != 0; }

}  // namespace lunkeeper
