#pragma once
// LK_CHECK(condition, "what would be broken"): stops the program when the condition is false, in release
// builds too. It prints file, line, condition and text to stderr, and aborts; the next start of the process,
// or another replica, goes on from what is recorded.
//
// It is for what our own code has to guarantee and what costs data when it is wrong: "no pod is deleted
// before its fence is verified". A process that is known to be wrong must not act on. It is not for data from
// outside (a message, an object of the API server, a block of a disk, a user's request): that is refused with
// an error, however absurd it is. Nor for what the compiler or a test can show.
//
// The condition is evaluated exactly once, and must change nothing. Any thread may use it.

#include <cstdio>
#include <cstdlib>

namespace lunkeeper {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition, const char* text) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, text);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lunkeeper

#define LK_CHECK(condition, text)                                                       \
  do {                                                                                  \
    if (!(condition)) ::lunkeeper::CheckFailed(__FILE__, __LINE__, #condition, (text)); \
  } while (false)
