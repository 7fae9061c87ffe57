#pragma once
// Keeps a daemon small.

#include <cstddef>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace lunkeeper {

// Before the first thread: a thread for each running call must not cost a malloc arena for each, and what is
// large goes back to the kernel as soon as it is freed, instead of leaving a hole in the heap.
void LimitHeap();

// Begins this program again, once, with every symbol of its libraries looked up at its start instead of at
// its first use: the look-ups read megabytes of symbol tables, which then are let go before the first call
// and not fetched for it. Before the first thread. Goes on as it is where that cannot be done.
void BindSymbolsAtStart(char** argv);

// Lets go of the pages of program files that are not in use right now (static constructors, the command line,
// the code of calls that are over), which would count as resident until memory runs short: half of a gRPC
// server's size. What is needed again comes back from the page cache, for a minor fault. Touches only
// mappings of files that cannot be written and hold no private copies, so nothing is lost. Takes about a
// millisecond. Thread-safe. Returns the bytes that were resident in them; 0 when the kernel does not say.
size_t ReleaseProgramPages();

// Lets go of those pages, and of free heap: soon after ReleaseSoon, which a server calls at the end of each
// of its calls (several may share one turn, since what is still needed must be fetched again), and every few
// seconds besides. Has a thread of its own, which the destructor joins. Thread-safe.
class MemoryTidier {
 public:
  MemoryTidier() : thread_([this] { Run(); }) {}
  ~MemoryTidier();
  MemoryTidier(const MemoryTidier&) = delete;
  MemoryTidier& operator=(const MemoryTidier&) = delete;

  void ReleaseSoon();

 private:
  void Run();
  bool WaitUntilDue();  // false: it is over

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace lunkeeper
