#include "base/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/time/time.h"

namespace lunkeeper {
namespace {

constexpr int kLarge = 256 << 10;  // bytes
constexpr absl::Duration kAtMostEach = absl::Milliseconds(200), kAtLeastEach = absl::Seconds(5);

// One entry of /proc/self/smaps.
struct Mapping {
  uintptr_t begin = 0, end = 0;
  char permissions[5] = "";
  bool is_file = false;
  size_t resident_kib = 0, private_copies_kib = 0;
};

// Is this line the head of an entry?
bool ParseHead(const std::string& line, Mapping* out) {
  Mapping mapping;
  uint64_t offset = 0;
  int path = 0;
  const int fields = std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %*s %n",
                                 &mapping.begin, &mapping.end, mapping.permissions, &offset, &path);
  if (fields != 4) return false;
  mapping.is_file = static_cast<size_t>(path) < line.size() && line[static_cast<size_t>(path)] == '/';
  *out = mapping;
  return true;
}

size_t Release(const Mapping& mapping) {
  const std::string permissions = mapping.permissions;
  const bool constant = permissions == "r-xp" || permissions == "r--p";
  if (!mapping.is_file || !constant || mapping.private_copies_kib != 0 || mapping.resident_kib == 0) return 0;
  void* const begin = reinterpret_cast<void*>(mapping.begin);  // NOLINT: the kernel's own number
  return ::madvise(begin, mapping.end - mapping.begin, MADV_DONTNEED) == 0 ? mapping.resident_kib * 1024 : 0;
}

}  // namespace

void LimitHeap() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, kLarge);  // set, it does not grow with what is freed
}

void BindSymbolsAtStart(char** argv) {
  constexpr char kBindNow[] = "LD_BIND_NOW";  // ld.so(8)
  const bool bound = std::getenv(kBindNow) != nullptr;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!bound && !error && ::setenv(kBindNow, "1", 1) == 0) ::execv(program.c_str(), argv);
  ::unsetenv(kBindNow);  // not for the programs that this one starts
}

size_t ReleaseProgramPages() {
  std::ifstream smaps("/proc/self/smaps");
  Mapping mapping;
  size_t released = 0;
  for (std::string line; std::getline(smaps, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) mapping.resident_kib = kib;
    if (std::sscanf(line.c_str(), "Anonymous: %zu kB", &kib) == 1) mapping.private_copies_kib = kib;
    Mapping next;
    if (!ParseHead(line, &next)) continue;
    released += Release(mapping);
    mapping = next;
  }
  return released + Release(mapping);
}

MemoryTidier::~MemoryTidier() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void MemoryTidier::ReleaseSoon() {
  const absl::MutexLock lock(&mutex_);
  wanted_ = true;
}

void MemoryTidier::Run() {
  do {
    ReleaseProgramPages();
    ::malloc_trim(0);
  } while (WaitUntilDue());
}

bool MemoryTidier::WaitUntilDue() {
  const absl::MutexLock lock(&mutex_);
  if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kAtMostEach)) return false;
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || wanted_; };
  mutex_.AwaitWithTimeout(absl::Condition(&due), kAtLeastEach);
  wanted_ = false;
  return !stopping_;
}

}  // namespace lunkeeper
