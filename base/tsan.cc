// Debian's Abseil and gRPC are not compiled for ThreadSanitizer, which therefore takes what an absl::Mutex
// guards for unguarded. In builds with -fsanitize=thread the linker (--wrap) puts these in front of absl's
// own functions: each tells TSan of the release and the acquire, and hides the reads made within absl, where
// one thread evaluates another's condition while it still holds the lock. A new absl function that we use is
// to be added here and in the list of CMakeLists.txt; without it TSan reports races that are none, never the
// other way round.

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);

// Read by TSan at start. A pattern that matches two libraries is refused, so one line a library.
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_cord_internal.so\n"
         "called_from_lib:libabsl_status.so\n"  // counts its references out of TSan's sight
         "race:absl::debian3::Status::Unref\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "race:libgrpc.so\n"  // std::string's functions, which it takes from us
         // A client and a server in one process hand each other data through gRPC: TSan sees both sides'
         // accesses, not what orders them. The server's own threads are still compared with each other.
         "race:grpc::internal::BlockingUnaryCallImpl\n"
         "race:grpc::internal::CallOpSet\n"
         "race:grpc::internal::CallOpClientRecvStatus\n"
         "called_from_lib:libssl.so\n"
         "called_from_lib:libcrypto.so\n"
         "called_from_lib:libprotobuf.so\n";
}
}

namespace {

enum Kind { kAcquires, kReleases, kWaits };

class Annotation {
 public:
  Annotation(absl::Mutex* mu, Kind kind) : mu_(mu), kind_(kind) {
    if (kind_ != kAcquires) __tsan_release(mu_);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~Annotation() {
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    if (kind_ != kReleases) __tsan_acquire(mu_);
  }

 private:
  absl::Mutex* const mu_;
  const Kind kind_;
};

}  // namespace

using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Time;

#define LK_WRAP(symbol, kind, result, parameters, arguments) \
  result __real_##symbol parameters;                         \
  result __wrap_##symbol parameters {                        \
    const Annotation annotation(mu, kind);                   \
    return __real_##symbol arguments;                        \
  }

extern "C" {
// clang-format off
LK_WRAP(_ZN4absl7debian35Mutex4LockEv, kAcquires, void, (Mutex* mu), (mu))
LK_WRAP(_ZN4absl7debian35Mutex6UnlockEv, kReleases, void, (Mutex* mu), (mu))
LK_WRAP(_ZN4absl7debian35Mutex7TryLockEv, kAcquires, bool, (Mutex* mu), (mu))
LK_WRAP(_ZN4absl7debian35Mutex10ReaderLockEv, kAcquires, void, (Mutex* mu), (mu))
LK_WRAP(_ZN4absl7debian35Mutex12ReaderUnlockEv, kReleases, void, (Mutex* mu), (mu))
LK_WRAP(_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE, kAcquires, void,
        (Mutex* mu, const Condition& c), (mu, c))
LK_WRAP(_ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE, kAcquires, bool,
        (Mutex* mu, const Condition& c, Duration d), (mu, c, d))
LK_WRAP(_ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE, kAcquires, bool,
        (Mutex* mu, const Condition& c, Time t), (mu, c, t))
LK_WRAP(_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE, kWaits, void,
        (Mutex* mu, const Condition& c), (mu, c))
LK_WRAP(_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE, kWaits, bool,
        (Mutex* mu, const Condition& c, Duration d), (mu, c, d))
LK_WRAP(_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, kWaits, bool,
        (Mutex* mu, const Condition& c, Time t), (mu, c, t))
LK_WRAP(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE, kWaits, void, (CondVar* v, Mutex* mu), (v, mu))
LK_WRAP(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE, kWaits, bool,
        (CondVar* v, Mutex* mu, Duration d), (v, mu, d))
LK_WRAP(_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE, kWaits, bool,
        (CondVar* v, Mutex* mu, Time t), (v, mu, t))
// clang-format on
}
