#pragma once
// Which volumes are in a pool that is full, so that their writes may fail at any time: the thin ones. A look
// at the arrays each quarter of a minute, on a thread of its own, and only while somebody wants to know. An
// array that does not answer is taken to be as it last was; to ask it costs the others a few seconds.
//
// Thread-safe. Nothing fails. The destructor waits for a look under way; the arrays outlive it.

#include <memory>

#include "base/executor.h"
#include "devices/array/arrays.h"
#include "fencing/core/event.h"

namespace lunkeeper::fencing {

class FullPools {
 public:
  virtual ~FullPools() = default;
  // Whether to look. Nothing is known at first, and while it is false.
  virtual void SetWanted(bool wanted) = 0;
  // As the last look found them.
  virtual std::shared_ptr<const VolumeSet> ListVolumes() = 0;
};

std::unique_ptr<FullPools> WatchFullPools(lunkeeper::Arrays& arrays, Executor& executor);

}  // namespace lunkeeper::fencing
