#pragma once
// A simulated process: the clock and the threads of the product's code (base/executor.h), in the world's
// time. Each of its threads is a fiber. While the process is stalled none of them runs, and events for it
// wait; its clock goes on. After Kill nothing of it reaches the world any more, and every call of its fails
// at once: its threads end by themselves, as in an orderly end, but for nobody to see.
//
// One thread. It outlives all that it has made, and every event of the world.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "fencing/core/time.h"
#include "fencing/sim/fiber.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// What a process's clock is: ahead of the world's by `offset`, and faster by so many parts of a thousand.
struct ClockError {
  Span offset;
  int per_mille = 0;
  Span wall = {};  // of the time of day, which people may set
};

class Process final : public Executor {
 public:
  Process(World& world, Endpoint endpoint, ClockError error)
      : world_(world), endpoint_(endpoint), error_(error) {}

  absl::Duration SteadyNow() const override;
  absl::Time WallNow() const override;
  std::unique_ptr<Thread> StartThread(std::function<void()> work) override;
  std::unique_ptr<Signal> MakeSignal() override;
  std::unique_ptr<Workers> MakeWorkers(size_t count) override;

  World& world() const { return world_; }
  Endpoint endpoint() const { return endpoint_; }
  bool dead() const { return dead_; }
  bool stalled() const { return held_ || world_.now() < stalled_until_; }
  WorldTime stalled_until() const { return stalled_until_; }
  size_t threads() const { return running_; }

  void Kill();
  void Stall(Span length) { stalled_until_ = world_.now() + length; }
  // A stall of unknown length.
  void Hold(bool on);
  void StepWallClock(Span by) { error_.wall = error_.wall + by; }
  // From outside: runs `what` now, or when the stall is over. Drops it if the process is dead.
  void Deliver(std::function<void()> what);

  // Of the running fiber. A call waits until `serve` at the other end has replied; none: it took too long, or
  // this process is dead.
  template <class Reply>
  std::optional<Reply> Call(Endpoint to, Span timeout,
                            std::function<void(std::function<void(Reply)>)> serve) {
    if (dead_) return std::nullopt;
    auto answer = std::make_shared<std::optional<Reply>>();
    Wait wait(*this);
    world_.Call<Reply>(endpoint_, to, timeout, std::move(serve),
                       [answer, wake = wait.wake()](const auto* reply) {
                         if (reply != nullptr && !answer->has_value()) *answer = *reply;
                         wake();
                       });
    wait.Await();
    return dead_ ? std::nullopt : *answer;
  }

  // One wait of the running fiber: ends with the first call of wake(), when the time given has passed, or
  // with the process.
  class Wait {
   public:
    explicit Wait(Process& process);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    // May be called at any time, also when the wait is long over.
    std::function<void()> wake() const;
    void Await();
    void AwaitFor(Span time);

   private:
    friend class Process;
    struct Waiting;
    Process& process_;
    const uint64_t number_;
    const std::shared_ptr<Waiting> state_;
  };
  // Of the running fiber; shorter if the process dies.
  void Sleep(Span time);

  // A length of its own time, in the world's.
  Span InWorld(absl::Duration time) const;

 private:
  struct FiberThread;
  class FiberSignal;
  class FiberWorkers;
  void Begin(std::shared_ptr<FiberThread> thread);
  void Continue(const std::shared_ptr<FiberThread>& thread);

  World& world_;
  const Endpoint endpoint_;
  ClockError error_;
  bool dead_ = false, held_ = false;
  std::vector<std::function<void()>> waiting_;  // while it is held
  WorldTime stalled_until_;
  uint64_t waits_ = 0;
  size_t running_ = 0;
  std::shared_ptr<FiberThread> current_;
  std::map<uint64_t, std::shared_ptr<Wait::Waiting>> calls_;  // that end with the process, by their number
};

}  // namespace lunkeeper::fencing::sim
