#include "devices/array/tgt/backup_manifest.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hmac.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

constexpr char kFirstLine[] = "lunkeeper backup 1";

absl::Status NoManifest(const std::string& line) {
  return absl::FailedPreconditionError(absl::StrCat("backup: its file `", kBackupManifest,
                                                    "` has a line that is not known: ", line,
                                                    "; was it made by a newer version?"));
}

absl::Status ParseLine(const std::string& line, BackupManifest* manifest) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() == 2 && words[0] == "array") {
    manifest->array = words[1];
    return absl::OkStatus();
  }
  if (line == "whole" || line == "opened") {
    (line == "whole" ? manifest->whole : manifest->opened) = true;
    return absl::OkStatus();
  }
  if (words.size() == 2 && words[0] == "gone") {
    manifest->files.erase(words[1]);
    return absl::OkStatus();
  }
  BackedUpFile file;
  const bool right = words.size() == 4 || words.size() == 5;
  if (!right || words[0] != "file" || !absl::SimpleAtoi(words[2], &file.size_bytes)) return NoManifest(line);
  file.digest = words[3];
  if (words.size() == 5) file.version = words[4];
  manifest->files[words[1]] = file;
  return absl::OkStatus();
}

absl::Status AppendLine(const UniqueFd& manifest, const std::string& line) {
  const std::string text = absl::StrCat(line, "\n");
  const ssize_t written = ::write(manifest.get(), text.data(), text.size());
  const bool all = written == static_cast<ssize_t>(text.size());
  if (all && ::fsync(manifest.get()) == 0) return absl::OkStatus();
  return FileError("write", kBackupManifest, all || written < 0 ? errno : ENOSPC);
}

// All of it or an error: who read less would cut the rest off, or take it for a backup that broke off. What
// is no file is no manifest: a folder of that name may be anybody's.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, O_RDONLY));
  std::string text, part(4096, '\0');
  while (true) {
    const ssize_t size = ::read(file.get(), part.data(), part.size());
    if (size == 0) return text;
    if (size > 0) text.append(part, 0, static_cast<size_t>(size));
    if (size < 0 && errno == EISDIR)
      return absl::NotFoundError(absl::StrCat("read ", path, ": it is a folder"));
    if (size < 0 && errno != EINTR) return FileError("read", path, errno);
  }
}

}  // namespace

void ImageDigest::AddBlock(uint64_t offset, std::string_view block) {
  chain_ = HmacSha256(absl::StrCat(chain_, offset), block);
}

std::string ImageDigest::text() const { return chain_.empty() ? "0" : absl::BytesToHexString(chain_); }

absl::StatusOr<BackupManifest> ParseBackupManifest(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  BackupManifest manifest;
  if (lines.empty()) return manifest;
  if (lines.front() != kFirstLine) return NoManifest(lines.front());
  for (size_t i = 1; i < lines.size(); ++i) RETURN_IF_ERROR(ParseLine(lines[i], &manifest));
  return manifest;
}

absl::StatusOr<BackupManifest> ReadBackupManifest(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(absl::StrCat(folder, "/", kBackupManifest)));
  return ParseBackupManifest(text);
}

absl::StatusOr<UniqueFd> OpenBackupManifest(const std::string& folder, const std::string& array) {
  const std::string path = absl::StrCat(folder, "/", kBackupManifest);
  ASSIGN_OR_RETURN(UniqueFd file, OpenFile(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return absl::AbortedError(absl::StrCat("backup to ", folder, ": another one is being made there"));
  ASSIGN_OR_RETURN(std::string text, ReadText(path));
  ASSIGN_OR_RETURN(const BackupManifest before, ParseBackupManifest(text));
  // What a crash has left of a line; and of the first two, which begin anew.
  text.resize(before.array.empty() ? 0 : text.rfind('\n') + 1);
  if (::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0) return FileError("cut", path, errno);
  if (!text.empty()) return file;
  RETURN_IF_ERROR(AppendLine(file, kFirstLine));
  RETURN_IF_ERROR(AppendLine(file, absl::StrCat("array ", array)));
  RETURN_IF_ERROR(SyncDirectoryOf(path));
  return file;
}

absl::Status AppendBackedUpFile(const UniqueFd& manifest, const std::string& path, const BackedUpFile& file) {
  return AppendLine(manifest,
                    absl::StrCat("file ", path, " ", file.size_bytes, " ", file.digest, " ", file.version));
}

absl::Status AppendGone(const UniqueFd& manifest, const std::string& path) {
  return AppendLine(manifest, absl::StrCat("gone ", path));
}

absl::Status AppendWhole(const UniqueFd& manifest) { return AppendLine(manifest, "whole"); }

absl::Status MarkBackupOpened(const std::string& folder) {
  ASSIGN_OR_RETURN(const UniqueFd file,
                   OpenFile(absl::StrCat(folder, "/", kBackupManifest), O_WRONLY | O_APPEND));
  return AppendLine(file, "opened");
}

absl::Status RemoveBackupManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kBackupManifest);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("remove", path, errno);
  return SyncDirectoryOf(path);
}

}  // namespace lunkeeper
