#pragma once
// Runs code that blocks, without a thread of its own. A fiber has its own stack: where it would block, it
// returns control to the caller of Resume, and goes on from there with the next Resume. One thread runs all
// fibers, and every switch is named in the code, so a run stays the same. An exception of the work leaves
// Resume, and ends the fiber. No mutex may be held in Suspend.

#include <boost/context/fiber.hpp>
#include <exception>
#include <functional>

namespace lunkeeper::fencing::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> work);
  // It has ended, or it never began.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it suspends itself or ends.
  void Resume();
  bool ended() const { return ended_; }

  // The one that runs; null: none does.
  static Fiber* Current();
  // Of the one that runs: returns when it is resumed.
  static void Suspend();

 private:
  void Run();
  // To the fiber, or from it to its resumer.
  void Switch();
  // What AddressSanitizer has to know of a switch of stacks.
  void BeginSwitchTo(bool fiber, bool for_good);
  void EndSwitch(bool in_fiber);

  std::function<void()> work_;
  char* const stack_;
  boost::context::fiber other_;  // seen from the fiber its resumer, seen from there the fiber
  bool ended_ = false;
  std::exception_ptr thrown_;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // these three for it alone
  [[maybe_unused]] const void* resumer_stack_ = nullptr;
  [[maybe_unused]] size_t resumer_stack_size_ = 0;
};

}  // namespace lunkeeper::fencing::sim
