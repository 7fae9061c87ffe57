#include "devices/array/tgt/hold_watch.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/full_pool.h"

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

// With as much as the image has, the pool cannot run full by it; with a share of the pool, the watch sees it
// coming.
absl::Status CheckRoomToHold(const ImageStore& images, const std::string& path) {
  const uint64_t has = images.MeasureImage(path).value_or(0);  // no file: there is nothing to overwrite
  ASSIGN_OR_RETURN(const PoolCapacity pool, images.MeasureCapacity());
  const uint64_t wanted = kFullPoolBytes + std::min(has, pool.total_bytes / kLowShare);
  if (pool.available_bytes >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "backup of ", path, ": the pool has ", pool.available_bytes, " bytes left, and ", wanted,
      " are needed: while a volume is copied, what nodes overwrite of it takes new space, and their writes "
      "would fail; delete volumes or snapshots, or grow the pool, and repeat the command"));
}

HoldWatch::HoldWatch(const ImageStore& images, int held)
    : images_(images), held_(held), free_before_(FreeBytes(images)), thread_([this] { Run(); }) {}

HoldWatch::~HoldWatch() {
  end_.Set();
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
  while (!IsFull())
    if (end_.WaitFor(kLookInterval)) return;
  const absl::MutexLock lock(&mu_);
  let_go_ = true;
  if (::ftruncate(held_, 0) != 0) LogError("array", "a backup cannot let go of the image that it copies");
}

}  // namespace lunkeeper
