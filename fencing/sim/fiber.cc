// Stacks are used again: a run has some ten thousand fibers, and some dozens at a time. The switch is
// Boost.Context's, for swapcontext saves the signal mask with a system call.

#include "fencing/sim/fiber.h"

#include <sys/mman.h>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define LUNKEEPER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LUNKEEPER_ASAN 1
#endif
#endif
#ifdef LUNKEEPER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace lunkeeper::fencing::sim {
namespace {

constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 4 << 10;

thread_local Fiber* running = nullptr;

class Stacks {
 public:
  ~Stacks() {
    for (char* stack : free_) munmap(stack, kStackBytes);
  }
  char* Take() {
    if (!free_.empty()) {
      char* stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) throw std::runtime_error("no memory for the stack of a fiber");
    mprotect(stack, kGuardBytes, PROT_NONE);  // it grows downwards: one that is too deep ends the program
    return static_cast<char*>(stack);
  }
  void Return(char* stack) { free_.push_back(stack); }

 private:
  std::vector<char*> free_;
};

thread_local Stacks stacks;

// Boost's interface to the above: the stack begins at its upper end.
struct StackOf {
  char* stack;
  boost::context::stack_context allocate() {
    boost::context::stack_context context;
    context.sp = stack + kStackBytes;
    context.size = kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) { stacks.Return(stack); }
};

}  // namespace

Fiber::Fiber(std::function<void()> work) : work_(std::move(work)), stack_(stacks.Take()) {
  other_ =
      boost::context::fiber(std::allocator_arg, StackOf{stack_}, [this](boost::context::fiber&& resumer) {
        other_ = std::move(resumer);
        EndSwitch(true);
        Run();
        BeginSwitchTo(false, true);
        return std::move(other_);
      });
}

Fiber::~Fiber() = default;

Fiber* Fiber::Current() { return running; }

void Fiber::Switch() { other_ = std::move(other_).resume(); }

void Fiber::Run() {
  try {
    work_();
  } catch (...) {
    thrown_ = std::current_exception();
  }
  work_ = nullptr;
  ended_ = true;
}

void Fiber::Resume() {
  Fiber* const outer = std::exchange(running, this);
  if (outer != nullptr) throw std::logic_error("a fiber resumes another one");
  BeginSwitchTo(true, false);
  Switch();
  EndSwitch(false);
  running = nullptr;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::Suspend() {
  Fiber* const self = running;
  if (self == nullptr) throw std::logic_error("something blocks that runs on no fiber");
  self->BeginSwitchTo(false, false);
  self->Switch();
  self->EndSwitch(true);
}

#ifdef LUNKEEPER_ASAN
void Fiber::BeginSwitchTo(bool fiber, bool for_good) {
  if (fiber) {
    __sanitizer_start_switch_fiber(&fake_stack_, stack_, kStackBytes);
  } else {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, resumer_stack_, resumer_stack_size_);
  }
}

void Fiber::EndSwitch(bool in_fiber) {
  if (in_fiber) {
    __sanitizer_finish_switch_fiber(nullptr, &resumer_stack_, &resumer_stack_size_);
  } else {
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
  }
}
#else
void Fiber::BeginSwitchTo(bool, bool) {}
void Fiber::EndSwitch(bool) {}
#endif

}  // namespace lunkeeper::fencing::sim
