#pragma once
// The real file systems on scratch devices. Needs root. What fails fails the test.

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/units.h"
#include "devices/filesystem/linux_mounter.h"
#include "devices/filesystem/testing/scratch_devices.h"
#include "devices/filesystem/tool_filesystem.h"

namespace lunkeeper {

inline constexpr uint64_t kSmall = 16 * kMiB;
inline constexpr uint64_t kXfsSize = 320 * kMiB;  // mkfs.xfs wants 300

inline constexpr char kVolume[] = "array:volume";

inline uint64_t SizeFor(FilesystemType type) { return type == FilesystemType::kXfs ? kXfsSize : kSmall; }

struct FilesystemFixture {
  testing::TempDir records;
  std::unique_ptr<Filesystem> filesystem = MakeToolFilesystem(records.path());
  std::unique_ptr<Mounter> mounter = MakeLinuxMounter();

  Content ContentOf(const ScratchLoop& device) {
    auto found = filesystem->Probe(device.path(), Soon());
    // A try that ran out of time may still have a read under way, on a busy machine.
    for (const absl::Time end = Soon(); absl::IsDeadlineExceeded(found.status()) && absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(50));
      found = filesystem->Probe(device.path(), Soon());
    }
    INFO(found.status());
    REQUIRE(found.ok());
    return found->content;
  }
  void Make(const ScratchLoop& device, FilesystemType type) {
    const absl::Status status = filesystem->Make({device.path(), type, kVolume}, Soon());
    INFO(status);
    REQUIRE(status.ok());
  }
  absl::Status Mount(const ScratchLoop& device, const std::string& target, FilesystemType type,
                     bool read_only = false) {
    return mounter->MountDevice(
        {.device = device.path(), .target = target, .type = type, .options = {}, .read_only = read_only},
        Soon());
  }
};

}  // namespace lunkeeper
