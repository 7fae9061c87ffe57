#pragma once
// malloc's settings of a daemon with a thread for each running call.

#include <malloc.h>

namespace lunkeeper {

// Called before the first thread. glibc gives each new thread an arena of its own, up to eight a processor
// (mallopt(3)), and each keeps what was freed in it: two are enough for a server that mostly waits. Blocks of
// 256 KiB and more are mapped alone, so that a freed list of all objects leaves no hole in the heap; once
// set, that threshold no longer grows by itself.
inline void LimitHeap() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
}

// Returns what was freed and has something in use behind it, which glibc does when it is asked only. After
// a first list of a large cluster that is a good part of all. Called now and then; takes some milliseconds.
inline void TrimHeap() { ::malloc_trim(0); }

}  // namespace lunkeeper
