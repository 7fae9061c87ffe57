// Children that die in all the ways in which a worker may die, and the marks that they leave.

#include "devices/datapath/crash_marks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

namespace lunkeeper {
namespace {

// A child that works on a volume in a thread of its own, as a worker does, and dies there.
class CrashingChild {
 public:
  explicit CrashingChild(const std::function<void()>& death, bool at_work = true) : pid_(::fork()) {
    if (pid_ == 0) Run(death, at_work);
  }
  void Kill(int number) const {
    while (slot_.answered == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(pid_, number);
  }
  // The signal that it died of.
  int Collect() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  bool marked() const { return slot_.work == SlotWork::kCrashed; }

 private:
  [[noreturn]] void Run(const std::function<void()>& death, bool at_work) {
    // Not those of the test framework, which would report this as a failure.
    for (int number = 1; number < SIGRTMIN; ++number) ::signal(number, SIG_DFL);
    MarkCrashes();
    // Signals from outside come to the thread that is at work.
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::thread([&] {
      ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
      const CrashStack stack;
      const WorkOnVolume work(slot_);
      if (!at_work) WorkOnVolume::End();
      slot_.answered = 1;
      death();
    }).join();
    ::_exit(0);
  }

  const SharedMemory memory_ = *SharedMemory::Create();
  VolumeSlot& slot_ = memory_.state()->slots[3];
  const pid_t pid_;
};

// Until the stack is full. Returns something, so that no compiler makes a loop of it.
int Overflow(int depth) {
  volatile char frame[4096];
  frame[depth % 4096] = 1;
  return depth < 0 ? 0 : Overflow(depth + 1) + frame[depth % 4096];
}

void WaitForever() {
  while (true) ::pause();
}

TEST_CASE("whatever signal a thread dies of by itself, the volume that it works on is marked") {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP}) {
    CAPTURE(number);
    const CrashingChild child([number] { ::raise(number); });
    CHECK(child.Collect() == number);
    CHECK(child.marked());
  }
}

TEST_CASE("so is the volume on which a thread overflows its stack") {
  const CrashingChild child([] { Overflow(0); });
  CHECK(child.Collect() == SIGSEGV);
  CHECK(child.marked());
}

TEST_CASE("a thread that works on no volume marks none") {
  const CrashingChild child([] { ::raise(SIGABRT); }, false);
  CHECK(child.Collect() == SIGABRT);
  CHECK_FALSE(child.marked());
}

TEST_CASE("a signal that another process sent marks no volume, and ends the process as ever") {
  for (const int number : {SIGSEGV, SIGABRT, SIGTRAP}) {
    CAPTURE(number);
    const CrashingChild child(&WaitForever);
    child.Kill(number);
    CHECK(child.Collect() == number);
    CHECK_FALSE(child.marked());
  }
}

TEST_CASE("a volume is marked only while a thread works on it, and one that went is left alone") {
  const SharedMemory memory = *SharedMemory::Create();
  VolumeSlot& slot = memory.state()->slots[3];
  {
    const WorkOnVolume work(slot);
    CHECK(slot.work == SlotWork::kNone);
    WorkOnVolume::End();
    WorkOnVolume::MarkCrash();
    CHECK(slot.work == SlotWork::kNone);
  }
  { const WorkOnVolume work(slot); }
  WorkOnVolume::MarkCrash();
  CHECK(slot.work == SlotWork::kNone);
  const WorkOnVolume work(slot);
  WorkOnVolume::MarkCrash();
  CHECK(slot.work == SlotWork::kCrashed);
}

#ifdef __x86_64__
TEST_CASE("a trap, which does not happen again by itself, ends the process") {
  const CrashingChild child([] { asm volatile("int3"); });
  CHECK(child.Collect() == SIGTRAP);
  CHECK(child.marked());
}
#endif

}  // namespace
}  // namespace lunkeeper
