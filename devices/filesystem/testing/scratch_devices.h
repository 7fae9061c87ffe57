#pragma once
// Loop devices, mount points and dead mounts for the tests of this folder: each cleans up after itself, also
// when a test fails. Needs root. Not thread-safe.

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "base/unique_fd.h"
#include "devices/filesystem/linux_mounter.h"
#include "devices/filesystem/tool_filesystem.h"

namespace lunkeeper {

inline absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// On a sparse file `name` in the directory, which is made unless it is there.
class ScratchLoop {
 public:
  ScratchLoop(const testing::TempDir& directory, const std::string& name, uint64_t bytes,
              bool read_only = false);
  ~ScratchLoop();
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }
  void Grow(uint64_t bytes);

 private:
  std::string file_, path_;
};

// A directory; what is mounted there is unmounted in the end.
class MountPoint {
 public:
  MountPoint(const testing::TempDir& directory, const std::string& name);
  ~MountPoint();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A FUSE file system whose server takes requests and never answers: a process that waits for it cannot be
// killed.
class DeadMount {
 public:
  DeadMount(const testing::TempDir& directory, const std::string& name);
  ~DeadMount();
  const std::string& path() const { return point_.path(); }

 private:
  MountPoint point_;
  UniqueFd channel_;
  std::thread server_;
};

// Whether the command succeeded.
bool Shell(const std::string& command);
std::string ReadFile(const std::string& path);
void WriteAt(const std::string& path, uint64_t at, const std::string& bytes);
std::string Digest(const std::string& path);

}  // namespace lunkeeper
