// A time of day of one's own, for the programs that are started with LD_PRELOAD=clock.so: the machine's, and
// the nanoseconds in the file CLOCK_OFFSET. A change of the file is a step of the clock.
//
// libfaketime does not adjust the futexes of Abseil's timed waits. Their deadline is by the clock that was
// read, and the kernel would end them by its own. Waits that are under way at a step are not moved.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t kSecond = 1000000000;
static const volatile int64_t kNone = 0;
static const volatile int64_t* offset = &kNone;
static long (*real_syscall)(long, ...);
static int (*real_gettime)(clockid_t, struct timespec*);
static int (*real_timedwait)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
static int (*real_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

__attribute__((constructor)) static void begin(void) {
  if (real_syscall) return;
  real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  real_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  real_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  const char* path = getenv("CLOCK_OFFSET");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    void* there = mmap(0, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);
    if (there != MAP_FAILED) offset = there;
    close(file);
  }
  real_syscall = dlsym(RTLD_NEXT, "syscall");
}

static struct timespec moved(struct timespec at, int64_t by) {
  const int64_t all = at.tv_sec * kSecond + at.tv_nsec + by;
  return (struct timespec){all / kSecond, all % kSecond};
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  begin();
  const int failed = real_gettime(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *now = moved(*now, *offset);
  return failed;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  *now = (struct timeval){at.tv_sec, at.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (now) *now = at.tv_sec;
  return at.tv_sec;
}

// The kernel's clock, at the time that this one shows. A steady time is no time of this century.
static struct timespec of_kernel(const struct timespec* at) {
  return at->tv_sec > kSecond ? moved(*at, -*offset) : *at;
}

int pthread_cond_timedwait(pthread_cond_t* restrict cond, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict end) {
  begin();
  const struct timespec at = of_kernel(end);
  return real_timedwait(cond, mutex, &at);
}

int pthread_cond_clockwait(pthread_cond_t* restrict cond, pthread_mutex_t* restrict mutex, clockid_t clock,
                           const struct timespec* restrict end) {
  begin();
  const struct timespec at = of_kernel(end);
  return real_clockwait(cond, mutex, clock, &at);
}

long syscall(long number, ...) {
  begin();
  long given[6];
  va_list all;
  va_start(all, number);
  for (int each = 0; each < 6; each++) given[each] = va_arg(all, long);
  va_end(all);
  struct timespec at;
  if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && given[3]) {
    at = of_kernel((const struct timespec*)given[3]);
    given[3] = (long)&at;
  }
  return real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
