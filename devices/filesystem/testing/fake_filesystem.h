#pragma once
// A Filesystem for tests: what is on a device is kept in memory, by the device's path. Thread-safe.

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "devices/filesystem/filesystem.h"

namespace lunkeeper {

class FakeFilesystem final : public Filesystem {
 public:
  absl::Status PrepareRaw(const std::string& device, absl::Time deadline) override;
  absl::StatusOr<FilesystemProbe> Probe(const std::string& device, absl::Time deadline) override;
  absl::Status Make(const UnmountedFilesystem& filesystem, absl::Time deadline) override;
  absl::Status Check(const UnmountedFilesystem& filesystem, absl::Time deadline) override;
  absl::Status GrowUnmounted(const UnmountedFilesystem& filesystem, absl::Time deadline) override;
  absl::Status GrowMounted(const std::string& device, const std::string& mount_point, FilesystemType type,
                           absl::Time deadline) override;
  absl::StatusOr<Usage> UsageOf(const std::string& path, absl::Time deadline) override;

  // What Probe finds on devices nothing was made on; blank unless set.
  void SetContent(FilesystemProbe content);
  // The next call of this name that has no such failure yet fails with `status`, once.
  void FailNext(const std::string& call, absl::Status status);
  // Names of the calls made so far that change a device ("Make", "Check", "GrowUnmounted", "GrowMounted").
  std::vector<std::string> Calls();
  bool Called(const std::string& call);
  // The mount point of the last GrowMounted.
  std::string GrownAt();

 private:
  absl::Status Record(const std::string& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  FilesystemProbe unmade_ ABSL_GUARDED_BY(mu_){.content = Content::kBlank};
  std::map<std::string, FilesystemProbe> made_ ABSL_GUARDED_BY(mu_);
  std::multimap<std::string, absl::Status> failures_ ABSL_GUARDED_BY(mu_);
  std::string grown_at_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
