#pragma once
// Which volume a worker crashed on, told by marks in the shared memory that outlives it (VolumeSlot::work):
// the thread that works on a volume marks it for that time, and a fatal signal marks it as the one.
//
// A worker that is killed leaves its marks too. They say nothing then: the supervisor asks first how it
// died (crash_history.h).

#include <atomic>

#include "devices/datapath/shared_state.h"

namespace lunkeeper {

// The calling thread works on this volume, and on no other, as long as this lives. Costs two stores.
class WorkOnVolume {
 public:
  explicit WorkOnVolume(VolumeSlot& slot) {
    slot.work.store(SlotWork::kUnderWay, std::memory_order_relaxed);
    current_ = &slot;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~WorkOnVolume() { End(); }
  WorkOnVolume(const WorkOnVolume&) = delete;
  WorkOnVolume& operator=(const WorkOnVolume&) = delete;

  // Now rather than at the end of the scope: before the slot may become another volume's.
  static void End() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (current_ != nullptr) current_->work.store(SlotWork::kNone, std::memory_order_relaxed);
    current_ = nullptr;
  }
  // The calling thread is about to die of a signal. Async-signal-safe.
  static void MarkCrash() {
    if (current_ != nullptr) current_->work.store(SlotWork::kCrashed, std::memory_order_relaxed);
  }

 private:
  static inline thread_local VolumeSlot* current_ = nullptr;
};

// From now on a fatal signal marks the volume that its thread works on; then it does what it did before.
void MarkCrashes();

}  // namespace lunkeeper
