#pragma once
// Which volume a worker crashed on, told by a mark in the shared memory that outlives it (VolumeSlot::work):
// each thread knows the volume that it works on, and a fatal signal of its own marks this one.
//
// Nothing else marks one: not a signal that another process sent, not the death of a thread that works on no
// volume, not SIGKILL, not an exit code.

#include <signal.h>

#include <atomic>
#include <memory>

#include "devices/datapath/shared_state.h"

namespace lunkeeper {

// The calling thread works on this volume, and on no other, as long as this lives. Costs two stores.
class WorkOnVolume {
 public:
  explicit WorkOnVolume(VolumeSlot& slot) {
    current_ = &slot;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~WorkOnVolume() { End(); }
  WorkOnVolume(const WorkOnVolume&) = delete;
  WorkOnVolume& operator=(const WorkOnVolume&) = delete;

  // Now rather than at the end of the scope: before the slot may become another volume's.
  static void End() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
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

// Where the calling thread marks a crash when its own stack is full. For the life of the thread.
class CrashStack {
 public:
  CrashStack();
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  const std::unique_ptr<char[]> stack_;
  stack_t before_ = {};  // a sanitizer's, which it wants to find at the thread's end
};

}  // namespace lunkeeper
