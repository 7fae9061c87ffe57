#pragma once
// A Mounter for tests: the mount table is a list in memory, targets are real directories and files.
// Thread-safe. A device is any file; its number is its inode's.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "devices/filesystem/mounter.h"

namespace lunkeeper {

class FakeMounter final : public Mounter {
 public:
  absl::Status MountDevice(const MountRequest& request, absl::Time deadline) override;
  absl::Status Bind(const std::string& source, const std::string& target, bool read_only,
                    absl::Time deadline) override;
  absl::Status Unmount(const std::string& target, bool lazy, absl::Time deadline) override;
  absl::Status WriteBack(const std::string& target, absl::Time deadline) override;
  absl::StatusOr<std::vector<Mount>> Mounts() override;
  absl::Status SetReadOnly(const std::string& device, bool read_only) override;
  absl::StatusOr<dev_t> NumberOf(const std::string& device) override;

  bool IsReadOnly(const std::string& device);
  // The file system of a device meets an error.
  void CloseFilesystem(const std::string& device);

  // Whether the device is mounted: FakeInitiator's `in_use`.
  bool IsMounted(const std::string& device);
  // The next call of this name ("MountDevice", "Bind", "Unmount", "WriteBack", "Mounts",
  // "SetReadOnly") fails with
  // `status`, once.
  void FailNext(const std::string& call, absl::Status status);
  // From now on, unmounting `target` is refused unless it is lazy.
  void KeepBusy(const std::string& target);

 private:
  absl::Status TakeFailure(const std::string& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::vector<Mount> mounts_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> read_only_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> busy_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, absl::Status> failures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
