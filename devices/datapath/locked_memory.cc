// Locking on fault (MCL_ONFAULT) rather than at once: libraries map far more than they use, and stacks of 8
// MiB each would count in full. What the I/O path needs is brought in by hand instead (PrefaultCode, the
// stack in event_loop.cc, the pool in buffer_pool.cc).

#include "devices/datapath/locked_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/log.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace lunkeeper {
namespace {

bool OnIoPath(const char* name) {
  constexpr std::array kLibraries = {"libc.so", "libstdc++.so", "libgcc_s.so",
                                     "libm.so", "ld-linux",     "libcrypto.so"};
  if (*name == '\0') return true;  // the program itself
  for (const char* library : kLibraries) {
    if (std::strstr(name, library) != nullptr) return true;
  }
  return false;
}

int PrefaultObject(dl_phdr_info* object, size_t, void*) {
  if (!OnIoPath(object->dlpi_name)) return 0;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));  // up to 64 KiB on arm64
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const uintptr_t end = (object->dlpi_addr + segment.p_vaddr + segment.p_memsz + page - 1) & ~(page - 1);
    // Data pages are made our own now: the first write would copy them. Relocated read-only parts refuse, and
    // need nothing.
    if ((segment.p_flags & PF_W) != 0) {
      ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
    }
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
  }
  return 0;
}

// Killing the process that writes dirty pages back frees no memory, so it is exempt from the OOM killer. As
// an "I/O flusher" (prctl(2)) its own allocations do not wait for write-back, which may be waiting for it.
// Both need CAP_SYS_RESOURCE.
void AskForExemption() {
  std::ofstream score("/proc/self/oom_score_adj");
  score << -1000 << std::flush;
  const bool flusher = ::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0;
  if (!score || !flusher) {
    LogDebug("datapath", "no exemptions where memory is short (CAP_SYS_RESOURCE); locked memory has to do");
  }
}

}  // namespace

void LockMemory() {
  AskForExemption();
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // One heap that never shrinks: what was allocated once is present for good.
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  if (::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) {
    LogWarn("datapath", "memory cannot be locked, so that a machine short of memory may stall its volumes",
            {{"error", std::strerror(errno)}});
  }
}

void PrefaultCode() { ::dl_iterate_phdr(&PrefaultObject, nullptr); }

}  // namespace lunkeeper
