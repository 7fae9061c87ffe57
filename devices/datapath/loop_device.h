#pragma once
// Loop devices on the file of a FuseMount. A device lives as long as somebody has it open (autoclear), so
// that nothing is left behind by a supervisor that dies but a free device; its tag (the loop's file name
// field) says which supervisor made it and for which volume, and so does a mark that sysfs shows. Its number
// is drawn at random from about a million: one that was in use lately does not come again.
//
// Thread-safe. What may wait for the file's I/O happens in a child process (base/child.h), until `deadline`.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct LoopDevice {
  UniqueFd fd;
  int number = -1;
  std::string path() const { return "/dev/loop" + std::to_string(number); }
};

struct LoopOptions {
  std::string tag;
  uint32_t block_size = 512;
  bool read_only = false;
};

absl::StatusOr<LoopDevice> MakeLoop(int fuse_root, const LoopOptions& options, absl::Time deadline);

// Makes the device as large as its file is now.
absl::Status GrowLoop(const LoopDevice& loop, int fuse_root, absl::Time deadline);

// Writes back what is cached. DATA_LOSS: that failed, now or earlier, and nobody has said so. The kernel
// forgets what it could not write, so this comes once; a repeated call may succeed. Given up at the deadline
// and repeated, it still says so, but for a flush of the target that failed meanwhile.
absl::Status WriteBackLoop(const LoopDevice& loop, absl::Time deadline);
// Closes the device to everybody else and to all I/O. Each try is made right after `prepare`, for what others
// may have written meanwhile. FAILED_PRECONDITION: somebody has it open, and it is as it was.
absl::Status SealLoop(const LoopDevice& loop, absl::FunctionRef<absl::Status()> prepare, absl::Time deadline);
// Whether a child of GrowLoop, WriteBackLoop or SealLoop that was given up still waits for the file's I/O.
bool HasWaitingChild(const LoopDevice& loop);
// What the kernel has cached of the device and not written back; nullopt where it cannot tell (Linux < 6.5).
// Waits for nothing.
std::optional<uint64_t> CountCachedBytes(const LoopDevice& loop);

// Removes a sealed device.
absl::Status RemoveLoop(LoopDevice loop, absl::Time deadline);

// Removes the free devices that dead supervisors have left.
void SweepLoops();

struct FoundLoop {
  int number;
  std::string name;  // what follows the prefix
  uint64_t size_bytes;
  bool read_only;
  friend bool operator==(const FoundLoop&, const FoundLoop&) = default;
};
// Devices whose tag begins with `prefix`, but for those to `skip`. Touches no other device.
std::vector<FoundLoop> FindLoops(const std::string& prefix, const std::function<bool(int number)>& skip);

}  // namespace lunkeeper
