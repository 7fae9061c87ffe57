#include "devices/filesystem/testing/fake_filesystem.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status_macros.h"

namespace lunkeeper {
namespace {

absl::StatusOr<uint64_t> FileSize(const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) return absl::ErrnoToStatus(errno, path);
  return static_cast<uint64_t>(file.st_size);
}

}  // namespace

absl::Status FakeFilesystem::Record(const std::string& call) {
  calls_.push_back(call);
  const auto failure = failures_.extract(call);
  return failure.empty() ? absl::OkStatus() : failure.mapped();
}

absl::Status FakeFilesystem::PrepareRaw(const std::string&, absl::Time) {
  absl::MutexLock lock(&mu_);
  const auto failure = failures_.extract("PrepareRaw");
  return failure.empty() ? absl::OkStatus() : failure.mapped();
}

absl::StatusOr<FilesystemProbe> FakeFilesystem::Probe(const std::string& device, absl::Time) {
  absl::MutexLock lock(&mu_);
  const auto failure = failures_.extract("Probe");
  if (!failure.empty()) return failure.mapped();
  const auto made = made_.find(device);
  FilesystemProbe result = made == made_.end() ? unmade_ : made->second;
  ASSIGN_OR_RETURN(result.device_bytes, FileSize(device));
  return result;
}

absl::Status FakeFilesystem::Make(const UnmountedFilesystem& filesystem, absl::Time) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Record("Make"));
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(filesystem.device));
  made_[filesystem.device] = {
      .content = Content::kFilesystem, .type = filesystem.type, .filesystem_bytes = size};
  return absl::OkStatus();
}

absl::Status FakeFilesystem::Check(const UnmountedFilesystem&, absl::Time) {
  absl::MutexLock lock(&mu_);
  return Record("Check");
}

absl::Status FakeFilesystem::GrowUnmounted(const UnmountedFilesystem& filesystem, absl::Time) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Record("GrowUnmounted"));
  const auto made = made_.find(filesystem.device);
  if (filesystem.type == FilesystemType::kXfs || made == made_.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(made->second.filesystem_bytes, FileSize(filesystem.device));
  return absl::OkStatus();
}

absl::Status FakeFilesystem::GrowMounted(const std::string& device, const std::string& mount_point,
                                         FilesystemType, absl::Time) {
  absl::MutexLock lock(&mu_);
  grown_at_ = mount_point;
  RETURN_IF_ERROR(Record("GrowMounted"));
  if (!made_.contains(device)) return absl::OkStatus();
  ASSIGN_OR_RETURN(made_[device].filesystem_bytes, FileSize(device));
  return absl::OkStatus();
}

absl::StatusOr<Usage> FakeFilesystem::UsageOf(const std::string&, absl::Time) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Record("UsageOf"));
  return Usage{.total_bytes = 1 << 30,
               .available_bytes = 1 << 29,
               .used_bytes = 1 << 29,
               .total_inodes = 1000,
               .free_inodes = 900,
               .used_inodes = 100};
}

void FakeFilesystem::SetContent(FilesystemProbe content) {
  absl::MutexLock lock(&mu_);
  unmade_ = std::move(content);
}

void FakeFilesystem::FailNext(const std::string& call, absl::Status status) {
  absl::MutexLock lock(&mu_);
  failures_.emplace(call, std::move(status));
}

std::vector<std::string> FakeFilesystem::Calls() {
  absl::MutexLock lock(&mu_);
  return calls_;
}

std::string FakeFilesystem::GrownAt() {
  absl::MutexLock lock(&mu_);
  return grown_at_;
}

bool FakeFilesystem::Called(const std::string& call) {
  absl::MutexLock lock(&mu_);
  return std::find(calls_.begin(), calls_.end(), call) != calls_.end();
}

}  // namespace lunkeeper
