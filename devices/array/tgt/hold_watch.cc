#include "devices/array/tgt/hold_watch.h"

#include <unistd.h>

#include "absl/time/time.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(200);
// The pool runs full: less than this share of it is free, and half of what was when the image was held.
constexpr uint64_t kLowShare = 20;

uint64_t FreeBytes(const ImageStore& images) {
  const auto capacity = images.MeasureCapacity();
  return capacity.ok() ? capacity->available_bytes : 0;
}

}  // namespace

HoldWatch::HoldWatch(const ImageStore& images, int held)
    : images_(images), held_(held), free_before_(FreeBytes(images)), thread_([this] { Run(); }) {}

HoldWatch::~HoldWatch() {
  {
    const absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  thread_.join();
}

absl::Status HoldWatch::Check() const {
  const absl::MutexLock lock(&mu_);
  if (!let_go_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the pool runs full, for it keeps what is overwritten meanwhile; the backup has let go of the image. "
      "Repeat the command when less is written, or grow the pool");
}

bool HoldWatch::IsFull() const {
  const auto pool = images_.MeasureCapacity();
  return pool.ok() && pool->available_bytes < free_before_ / 2 &&
         pool->available_bytes < pool->total_bytes / kLowShare;
}

// The mark first: who reads zeroes where the image was must find it.
void HoldWatch::Run() {
  while (!IsFull()) {
    const absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&ended_), kLookInterval)) return;
  }
  const absl::MutexLock lock(&mu_);
  let_go_ = true;
  if (::ftruncate(held_, 0) != 0) LogError("array", "a backup cannot let go of the image that it copies");
}

}  // namespace lunkeeper
