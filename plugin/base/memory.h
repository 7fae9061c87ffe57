#pragma once
// Keeps a daemon small.

#include <cstddef>

namespace lunkeeper {

// Before the first thread: a thread for each running call must not cost a malloc arena for each.
void LimitArenas();

// Lets go of the pages of program files that are not in use right now (static constructors, the command line,
// the code of calls that are over), which would count as resident until memory runs short: half of a gRPC
// server's size. What is needed again comes back from the page cache, for a minor fault. Touches only
// mappings of files that cannot be written and hold no private copies, so nothing is lost. Takes about a
// millisecond. Thread-safe. Returns the bytes that were resident in them; 0 when the kernel does not say.
size_t ReleaseProgramPages();

}  // namespace lunkeeper
