#include "devices/datapath/testing/fake_initiator.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

absl::Status SetFileSize(const std::string& path, uint64_t bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("fake device ", path));
  }
  return absl::OkStatus();
}

}  // namespace

FakeInitiator::FakeInitiator(std::string directory, std::function<bool(const std::string& path)> in_use)
    : directory_(std::move(directory)), in_use_(std::move(in_use)) {
  ::mkdir(directory_.c_str(), 0700);
}

FakeInitiator::~FakeInitiator() {
  for (const auto& [volume, device] : devices_) ::unlink(device.path.c_str());
  ::rmdir(directory_.c_str());
}

absl::Status FakeInitiator::TakeFailure(const std::string& call) {
  const auto failure = failures_.extract(call);
  return failure.empty() ? absl::OkStatus() : failure.mapped();
}

absl::StatusOr<Device> FakeInitiator::Attach(const AttachRequest& request) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Attach"));
  const auto there = devices_.find(request.volume);
  if (there != devices_.end()) {
    if (there->second.target == request.connection.target) return there->second;
    return absl::FailedPreconditionError(
        absl::StrCat("volume ", request.volume.value(), " is attached on another target; detach it first"));
  }
  Device device;
  device.volume = request.volume;
  device.path = absl::StrCat(directory_, "/device-", next_++);
  device.size_bytes = request.size_bytes;
  device.read_only = request.read_only;
  device.portal = request.connection.portal;
  device.target = request.connection.target;
  device.limits = request.limits;
  RETURN_IF_ERROR(SetFileSize(device.path, device.size_bytes));
  devices_[request.volume] = device;
  if (std::exchange(die_after_attach_, false)) devices_.clear();
  return device;
}

absl::Status FakeInitiator::Detach(const VolumeId& volume) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Detach"));
  const auto there = devices_.find(volume);
  if (there == devices_.end()) return absl::OkStatus();
  if (in_use_ && in_use_(there->second.path)) {
    return absl::FailedPreconditionError(absl::StrCat("device ", there->second.path, " is open"));
  }
  ::unlink(there->second.path.c_str());
  devices_.erase(there);
  return absl::OkStatus();
}

absl::Status FakeInitiator::Fail(const VolumeId& volume, const Iqn& target, const std::string& reason) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Fail"));
  const auto there = devices_.find(volume);
  if (there == devices_.end() || there->second.target != target) return absl::OkStatus();
  there->second.health = DeviceHealth::kFailed;
  there->second.reason = reason;
  return absl::OkStatus();
}

absl::Status FakeInitiator::SetLimits(const VolumeId& volume, const VolumeLimits& limits) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("SetLimits"));
  const auto there = devices_.find(volume);
  if (there != devices_.end() && there->second.limits.version < limits.version) there->second.limits = limits;
  return absl::OkStatus();
}

absl::StatusOr<Device> FakeInitiator::Resize(const VolumeId& volume) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Resize"));
  const auto there = devices_.find(volume);
  if (there == devices_.end())
    return absl::NotFoundError(absl::StrCat("volume ", volume.value(), " is not attached"));
  if (lun_size_) {
    ASSIGN_OR_RETURN(there->second.size_bytes, lun_size_(volume));
    RETURN_IF_ERROR(SetFileSize(there->second.path, there->second.size_bytes));
  }
  return there->second;
}

absl::StatusOr<std::vector<Device>> FakeInitiator::List() {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("List"));
  std::vector<Device> devices;
  for (const auto& [volume, device] : devices_) devices.push_back(device);
  return devices;
}

absl::StatusOr<std::optional<Device>> FakeInitiator::Find(const VolumeId& volume) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(TakeFailure("Find"));
  const auto there = devices_.find(volume);
  if (there == devices_.end()) return std::optional<Device>();
  return std::optional<Device>(there->second);
}

void FakeInitiator::SetLunSize(std::function<absl::StatusOr<uint64_t>(const VolumeId&)> lun_size) {
  absl::MutexLock lock(&mu_);
  lun_size_ = std::move(lun_size);
}

void FakeInitiator::FailNext(const std::string& call, absl::Status status) {
  absl::MutexLock lock(&mu_);
  failures_[call] = std::move(status);
}

void FakeInitiator::DieAfterAttach() {
  absl::MutexLock lock(&mu_);
  die_after_attach_ = true;
}

void FakeInitiator::Replace() {
  absl::MutexLock lock(&mu_);
  devices_.clear();
}

void FakeInitiator::SetHealth(const VolumeId& volume, DeviceHealth health, const std::string& reason) {
  absl::MutexLock lock(&mu_);
  devices_.at(volume).health = health;
  devices_.at(volume).reason = reason;
}

}  // namespace lunkeeper
