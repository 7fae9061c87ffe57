#pragma once
// Keeps a daemon small.

#include <cstddef>

namespace lunkeeper {

// Before the first thread: a thread for each running call must not cost a malloc arena for each.
void LimitArenas();

// After the start: lets go of the pages of program files that only the start has touched (static
// constructors, the command line, protobuf's tables), which would count as resident until memory runs short.
// What is still needed comes back from the page cache, and costs a minor fault. Touches only mappings of
// files that cannot be written and hold no private copies, so nothing is lost. Thread-safe. Returns the bytes
// that were resident in them; 0 when the kernel does not say.
size_t ReleaseStartPages();

}  // namespace lunkeeper
