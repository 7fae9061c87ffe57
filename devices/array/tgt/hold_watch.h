#pragma once
// Lets go of a held image when the pool runs full, which keeps what is overwritten of it: also while the copy
// of it waits for a disk that hangs. Then the pool's room is free again, and what is read of the held image
// is no more the image.
//
// Owns a thread, which the destructor ends. The store and the descriptor outlive it.

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/steady_signal.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// Before a volume is held: what nodes overwrite meanwhile takes new space, also of a thick volume, and the
// watch needs time to let go. RESOURCE_EXHAUSTED: the pool has too little.
absl::Status CheckRoomToHold(const ImageStore& images, const std::string& path);

class HoldWatch {
 public:
  // `held`: of HoldImage, opened to write.
  HoldWatch(const ImageStore& images, int held);
  ~HoldWatch();
  HoldWatch(const HoldWatch&) = delete;
  HoldWatch& operator=(const HoldWatch&) = delete;

  // OK: what was read before this call is the image. RESOURCE_EXHAUSTED: the watch has let go of it.
  absl::Status Check() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsFull() const;

  const ImageStore& images_;
  const int held_;
  const uint64_t free_before_;
  mutable absl::Mutex mu_;
  SteadySignal end_;
  bool let_go_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lunkeeper
