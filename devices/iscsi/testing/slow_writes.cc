// Preloaded into a target (LD_PRELOAD) to make its writes slow: each sleeps up to LUNKEEPER_SLOW_WRITES_MS
// before it is carried out, so that old ones are still under way when their connection is long gone.

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

namespace {

void Dawdle() {
  static const int limit_ms = [] {
    const char* text = std::getenv("LUNKEEPER_SLOW_WRITES_MS");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  thread_local std::minstd_rand random(static_cast<unsigned>(::gettid()));
  if (limit_ms > 0) ::usleep(static_cast<unsigned>(random() % static_cast<unsigned>(limit_ms * 1000)));
}

}  // namespace

extern "C" {
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  Dawdle();
  return ::syscall(SYS_pwrite64, fd, data, size, offset);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}
}
