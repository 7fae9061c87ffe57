#pragma once
// The memory that the supervisor shares with one worker after another: what must outlive a worker's crash,
// and the worker's answers. A memfd, mapped by both; everything in it is zero at first.
//
// Thread safety: each member says who writes it; all are atomics but the text in LunState.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/iscsi/lun.h"
#include "devices/volume_limits.h"

namespace lunkeeper {

constexpr size_t kMaxVolumes = 1024;
constexpr size_t kMaxThreads = 64;

// Whether the worker crashed on a volume (crash_marks.h). Workers of an older version also write kUnderWay,
// which nobody reads.
enum class SlotWork : uint8_t { kNone, kUnderWay, kCrashed };

// The volume's limits, for every worker that serves it. The supervisor's; workers read them at any time, and
// may see one of them a moment before the other.
struct SlotLimits {
  std::atomic<uint64_t> iops, bytes_per_second, version;

  void SetLimits(const VolumeLimits& limits) {
    iops = limits.iops;
    bytes_per_second = limits.bytes_per_second;
    version = limits.version;
  }
  VolumeLimits GetLimits() const {
    return {.iops = iops, .bytes_per_second = bytes_per_second, .version = version};
  }
};

// Of a fixed size, so that there is room for members to come. Where an older data path wrote the slot, those
// are zero.
struct alignas(1024) VolumeSlot {
  // Set by the worker once it serves the volume; cleared by the supervisor for the next one.
  std::atomic<bool> open;
  std::atomic<SlotWork> work;  // written by the worker; cleared by the supervisor for the next one
  // The last command of this slot that the worker carried out, by its tag, and the result, an errno. `answer`
  // is written before `answered`.
  std::atomic<uint64_t> answered;
  std::atomic<int> answer;
  // Another number for each volume that has the slot, and once more when its device is removed. The
  // supervisor's; it outlives that one, and says which of the volumes it had are still there.
  std::atomic<uint32_t> attachment;
  LunState lun;  // written by the worker; it grows into the room behind it
  std::byte room[1024 - 24 - sizeof(LunState) - sizeof(uint64_t) - sizeof(SlotLimits)];
  // Of `lun.failed_writes`, how many a detach has told of. The supervisor's; it outlives that one.
  std::atomic<uint64_t> told_failures;
  SlotLimits limits;  // what comes next goes before `told_failures`

  // By the worker, which then raises the supervisor's eventfd.
  void AnswerCommand(uint64_t tag, int error) {
    answer = error;
    answered = tag;
  }
  // By the supervisor: the failures since its last call.
  uint64_t TakeFailedWrites() {
    const uint64_t failed = lun.failed_writes;
    return failed - told_failures.exchange(failed);
  }
};

struct SharedState {
  std::atomic<uint32_t> version;  // written by the worker when it is ready: kSharedStateVersion
  // One for each event loop, which raises it at least once a second.
  std::atomic<uint64_t> heartbeats[kMaxThreads];
  VolumeSlot slots[kMaxVolumes];
};

// A worker of another version cannot take over: it would read this memory wrongly. Raise the first figure
// when the meaning changes and the size does not.
constexpr uint32_t kSharedStateVersion = (2U << 24) ^ static_cast<uint32_t>(sizeof(SharedState));

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(VolumeSlot, lun) == 24 && offsetof(VolumeSlot, limits) == 1000,
              "workers and supervisors of another version look for them here");

// A mapping of the memory. Movable through its pointer only; unmapped when destroyed.
class SharedMemory {
 public:
  static absl::StatusOr<SharedMemory> Create();
  static absl::StatusOr<SharedMemory> Map(UniqueFd memfd);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  int fd() const { return memfd_.get(); }
  // Waits until no other process holds it, and holds it until this process has ended: so there is one worker
  // at a time, whichever supervisor started it.
  absl::Status LockForWorker() const;
  SharedState* state() const { return state_; }

 private:
  SharedMemory(UniqueFd memfd, SharedState* state) : memfd_(std::move(memfd)), state_(state) {}
  UniqueFd memfd_;
  SharedState* state_;
};

}  // namespace lunkeeper
