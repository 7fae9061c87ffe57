// A library to preload into tgtd: each write to a LUN's file waits before it is made, by as many milliseconds
// as the file named in SLOW_WRITES_FILE says at that moment: a number, or two with a hyphen ("0-20") between
// which each write draws its own, so that writes overtake each other. A flush waits as the file of that name
// with ".flushes" behind it says, if it is there. In any other program it does nothing, so that it may stand
// in the environment of the one that starts tgtd.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

namespace {

using Write = ssize_t (*)(int, const void*, size_t, off64_t);
using Flush = int (*)(int);

// -1 where nothing is to be slowed.
int OpenDelayFile(const char* end) {
  const char* const path = std::getenv("SLOW_WRITES_FILE");
  if (path == nullptr || std::strcmp(program_invocation_short_name, "tgtd") != 0) return -1;
  return open((std::string(path) + end).c_str(), O_RDONLY | O_CLOEXEC);
}

void Delay(int fd) {
  char text[16] = {};
  if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0) return;
  char* end = nullptr;
  const long least = std::strtol(text, &end, 10);
  const long most = *end == '-' ? std::strtol(end + 1, nullptr, 10) : least;
  if (most <= 0 || most < least) return;
  thread_local std::minstd_rand random(static_cast<unsigned>(gettid()));
  std::uniform_int_distribution<long> microseconds(least * 1000, most * 1000);
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
}

}  // namespace

// Declared by <unistd.h>; found here first by the dynamic linker.
extern "C" ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static const auto real = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "pwrite64"));
  static const int delays = OpenDelayFile("");
  Delay(delays);
  return real(fd, data, size, offset);
}

extern "C" int fdatasync(int fd) {
  static const auto real = reinterpret_cast<Flush>(dlsym(RTLD_NEXT, "fdatasync"));
  static const int delays = OpenDelayFile(".flushes");
  Delay(delays);
  return real(fd);
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}
