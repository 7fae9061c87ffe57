#include "devices/filesystem/testing/fake_mounter.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/filesystem/mount_options.h"

namespace lunkeeper {
namespace {

absl::Status CheckTarget(const std::string& target, bool directory) {
  struct stat found = {};
  if (::lstat(target.c_str(), &found) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("mount at ", target));
  if (S_ISDIR(found.st_mode) == directory) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("mount at ", target, ": a target of the wrong kind"));
}

}  // namespace

absl::Status FakeMounter::TakeFailure(const std::string& call) {
  const auto failure = failures_.extract(call);
  return failure.empty() ? absl::OkStatus() : failure.mapped();
}

absl::Status FakeMounter::MountDevice(const MountRequest& request, absl::Time) {
  ASSIGN_OR_RETURN(const dev_t number, NumberOf(request.device));
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("MountDevice"));
  RETURN_IF_ERROR(CheckTarget(request.target, /*directory=*/true));
  const bool read_only = request.read_only || IsReadOnlyMount(request.options);
  mounts_.push_back({request.target, number, false, ToString(request.type), read_only});
  return absl::OkStatus();
}

absl::Status FakeMounter::Bind(const std::string& source, const std::string& target, bool read_only,
                               absl::Time) {
  const absl::StatusOr<dev_t> number = NumberOf(source);
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Bind"));
  const auto mounted =
      std::find_if(mounts_.rbegin(), mounts_.rend(), [&](const Mount& m) { return m.target == source; });
  const bool is_node = mounted == mounts_.rend();
  RETURN_IF_ERROR(CheckTarget(target, /*directory=*/!is_node));
  if (is_node) {
    RETURN_IF_ERROR(number.status());
    mounts_.push_back({target, *number, true, "devtmpfs", read_only});
  } else {
    Mount mount = *mounted;
    mount.target = target;
    mount.read_only = mount.read_only || read_only;
    mounts_.push_back(mount);
  }
  return absl::OkStatus();
}

absl::Status FakeMounter::Unmount(const std::string& target, bool lazy, absl::Time) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Unmount"));
  const auto top =
      std::find_if(mounts_.rbegin(), mounts_.rend(), [&](const Mount& m) { return m.target == target; });
  if (top == mounts_.rend()) return absl::OkStatus();
  if (!lazy && std::find(busy_.begin(), busy_.end(), target) != busy_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("unmount ", target, ": in use"));
  }
  mounts_.erase(std::next(top).base());
  return absl::OkStatus();
}

absl::Status FakeMounter::WriteBack(const std::string&, absl::Time) {
  absl::MutexLock lock(&mu_);
  return TakeFailure("WriteBack");
}

absl::StatusOr<std::vector<Mount>> FakeMounter::Mounts() {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Mounts"));
  return mounts_;
}

absl::Status FakeMounter::SetReadOnly(const std::string& device, bool read_only) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("SetReadOnly"));
  if (read_only) {
    read_only_.insert(device);
  } else {
    read_only_.erase(device);
  }
  return absl::OkStatus();
}

void FakeMounter::CloseFilesystem(const std::string& device) {
  const dev_t number = NumberOf(device).value();
  absl::MutexLock lock(&mu_);
  for (Mount& mount : mounts_) {
    if (mount.device == number) mount.file_system_read_only = true;
  }
}

bool FakeMounter::IsReadOnly(const std::string& device) {
  absl::MutexLock lock(&mu_);
  return read_only_.count(device) != 0;
}

absl::StatusOr<dev_t> FakeMounter::NumberOf(const std::string& device) {
  struct stat found = {};
  if (::stat(device.c_str(), &found) != 0) return absl::ErrnoToStatus(errno, device);
  return static_cast<dev_t>(found.st_ino);
}

bool FakeMounter::IsMounted(const std::string& device) {
  const absl::StatusOr<dev_t> number = NumberOf(device);
  absl::MutexLock lock(&mu_);
  return number.ok() &&
         std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& m) { return m.device == *number; });
}

void FakeMounter::FailNext(const std::string& call, absl::Status status) {
  absl::MutexLock lock(&mu_);
  failures_[call] = std::move(status);
}

void FakeMounter::KeepBusy(const std::string& target) {
  absl::MutexLock lock(&mu_);
  busy_.push_back(target);
}

}  // namespace lunkeeper
