#pragma once
// An Initiator without iSCSI, root or a kernel, for tests: devices are sparse files in a directory.
// Thread-safe. It keeps what the real one promises (idempotent, one target a device, no detach while in use)
// and fails when told to.

#include <functional>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

class FakeInitiator final : public Initiator {
 public:
  // `directory` is made if it is not there. Whether a device is in use is asked of `in_use` (null: never).
  explicit FakeInitiator(std::string directory,
                         std::function<bool(const std::string& path)> in_use = nullptr);
  ~FakeInitiator() override;  // removes its files, and the directory if it is empty then

  absl::StatusOr<Device> Attach(const AttachRequest& request) override;
  absl::Status Detach(const VolumeId& volume) override;
  absl::Status Fail(const VolumeId& volume, const Iqn& target, const std::string& reason) override;
  absl::Status SetLimits(const VolumeId& volume, const VolumeLimits& limits) override;
  absl::StatusOr<Device> Resize(const VolumeId& volume) override;
  absl::StatusOr<std::vector<Device>> List() override;
  absl::StatusOr<std::optional<Device>> Find(const VolumeId& volume) override;
  bool IsOfAnyDatapath(dev_t) override { return true; }  // a fake mount table has no other devices

  // Where Resize learns the LUN's size; without it a LUN has the size it was attached with.
  void SetLunSize(std::function<absl::StatusOr<uint64_t>(const VolumeId&)> lun_size);
  // The next call of this name ("Attach", "Detach", "Fail", "SetLimits", "Resize", "List",
  // "Find") fails with `status`, once.
  void FailNext(const std::string& call, absl::Status status);
  // The data path dies when the next Attach has answered: no volume has a device any more, and the paths are
  // free for others.
  void DieAfterAttach();
  // Another data path answers from now on, and the devices of this one stay.
  void Replace();
  // Of an attached volume.
  void SetHealth(const VolumeId& volume, DeviceHealth health, const std::string& reason);

 private:
  absl::Status TakeFailure(const std::string& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string directory_;
  const std::function<bool(const std::string&)> in_use_;

  absl::Mutex mu_;
  std::function<absl::StatusOr<uint64_t>(const VolumeId&)> lun_size_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, absl::Status> failures_ ABSL_GUARDED_BY(mu_);
  std::map<VolumeId, Device> devices_ ABSL_GUARDED_BY(mu_);
  bool die_after_attach_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lunkeeper
