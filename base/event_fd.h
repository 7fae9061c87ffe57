#pragma once
// An eventfd as the end of a wait. Any thread may raise one, also in another process that has it.

#include <unistd.h>

#include <cstdint>

namespace lunkeeper {

// Who polls or reads `event` wakes up. It cannot fail in a way that matters: a counter that is full has not
// been read yet.
inline void RaiseEvent(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof(one));
}

}  // namespace lunkeeper
