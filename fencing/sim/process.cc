// The code that waits makes a Wait, passes its wake function on, and then awaits it. The end of a wait puts
// the fiber's turn on the world's agenda and never resumes it from within another fiber, so turns are taken
// in the order in which the waits ended.

#include "fencing/sim/process.h"

#include <deque>
#include <exception>
#include <stdexcept>

namespace lunkeeper::fencing::sim {
namespace {

// Some day. What matters is that each process has the same, and no machine's own.
constexpr int64_t kBegin = 1'800'000'000;

Span OfDuration(absl::Duration time) {
  return Span::OfMilliseconds(absl::ToInt64Milliseconds(absl::Ceil(time, absl::Milliseconds(1))));
}

}  // namespace

struct Process::FiberThread {
  explicit FiberThread(std::function<void()> work) : fiber(std::move(work)) {}
  Fiber fiber;
  std::function<void()> ended = {};
};

struct Process::Wait::Waiting {
  std::shared_ptr<FiberThread> thread;
  bool over = false;
};

absl::Duration Process::SteadyNow() const {
  const Span stepped = world_.Has(Mutant::kSteadyClockSteps) ? error_.wall : Span();
  const Span passed = world_.now().since_start() + stepped;
  return absl::Milliseconds((error_.offset + passed + error_.per_mille * passed / 1000).milliseconds());
}

absl::Time Process::WallNow() const {
  const Span own = world_.now().since_start() + error_.wall;
  return absl::FromUnixSeconds(kBegin) + absl::Milliseconds(own.milliseconds());
}

Span Process::InWorld(absl::Duration time) const {
  if (time <= absl::ZeroDuration()) return Span();
  const Span own = OfDuration(time);
  return std::max<Span>(1000 * own / (1000 + error_.per_mille), 1_ms);
}

void Process::Begin(std::shared_ptr<FiberThread> thread) {
  ++running_;
  world_.AfterInProcess(0_ms, [this, thread = std::move(thread)] { Continue(thread); });
}

// Runs the fiber on, unless the process is stalled: then its turn comes afterwards.
void Process::Continue(const std::shared_ptr<FiberThread>& thread) {
  if (held_) return waiting_.push_back([this, thread] { Continue(thread); });
  if (stalled())
    return world_.AfterInProcess(stalled_until_ - world_.now(), [this, thread] { Continue(thread); });
  current_ = thread;
  std::exception_ptr thrown;
  try {
    thread->fiber.Resume();
  } catch (...) {
    thrown = std::current_exception();
  }
  current_ = nullptr;
  if (thread->fiber.ended()) {
    --running_;
    if (thread->ended) thread->ended();
  }
  if (thrown) std::rethrow_exception(thrown);
}

void Process::Hold(bool on) {
  held_ = on;
  if (held_) return;
  for (auto& what : std::exchange(waiting_, {})) world_.AfterInProcess(0_ms, std::move(what));
}

void Process::Kill() {
  dead_ = true;
  stalled_until_ = world_.now();
  Hold(false);
  for (const auto& [number, state] : std::exchange(calls_, {})) {
    if (std::exchange(state->over, true)) continue;
    world_.AfterInProcess(0_ms, [this, thread = state->thread] { Continue(thread); });
  }
}

void Process::Deliver(std::function<void()> what) {
  if (dead_) return;
  if (!stalled()) return what();
  if (held_)
    return waiting_.push_back([this, what = std::move(what)]() mutable { Deliver(std::move(what)); });
  world_.After(stalled_until_ - world_.now(),
               [this, what = std::move(what)]() mutable { Deliver(std::move(what)); });
}

Process::Wait::Wait(Process& process)
    : process_(process), number_(++process.waits_), state_(std::make_shared<Waiting>()) {
  state_->thread = process.current_;
  process_.calls_[number_] = state_;
}

Process::Wait::~Wait() { process_.calls_.erase(number_); }

std::function<void()> Process::Wait::wake() const {
  return [&process = process_, state = state_] {
    if (std::exchange(state->over, true)) return;
    process.world_.AfterInProcess(
        0_ms, [&process, thread = std::move(state->thread)] { process.Continue(thread); });
  };
}

void Process::Wait::Await() { Fiber::Suspend(); }

void Process::Wait::AwaitFor(Span time) {
  process_.world_.AfterInProcess(time, wake());
  Await();
}

void Process::Sleep(Span time) {
  if (dead_) return;
  Wait(*this).AwaitFor(time);
}

std::unique_ptr<Thread> Process::StartThread(std::function<void()> work) {
  class Handle final : public Thread {
   public:
    Handle(Process& process, std::shared_ptr<FiberThread> thread)
        : process_(process), thread_(std::move(thread)) {}
    ~Handle() override {
      if (thread_->fiber.ended()) return;
      Wait wait(process_);
      thread_->ended = wait.wake();
      process_.calls_.erase(wait.number_);  // a thread ends, also that of a dead process
      wait.Await();
    }

   private:
    Process& process_;
    const std::shared_ptr<FiberThread> thread_;
  };
  auto thread = std::make_shared<FiberThread>(std::move(work));
  Begin(thread);
  return std::make_unique<Handle>(*this, std::move(thread));
}

class Process::FiberSignal final : public Signal {
 public:
  explicit FiberSignal(Process& process) : process_(process) {}
  void Set() override {
    set_ = true;
    if (auto wake = std::exchange(wake_, nullptr)) wake();
  }
  bool WaitFor(absl::Duration time) override {
    if (!set_ && time > absl::ZeroDuration()) {
      Wait wait(process_);
      process_.calls_.erase(wait.number_);  // the process may be dead, and ends in an orderly way
      wake_ = wait.wake();
      time < absl::Hours(1) ? wait.AwaitFor(process_.InWorld(time)) : wait.Await();
      wake_ = nullptr;
    }
    return std::exchange(set_, false);
  }

 private:
  Process& process_;
  bool set_ = false;
  std::function<void()> wake_;
};

std::unique_ptr<Signal> Process::MakeSignal() { return std::make_unique<FiberSignal>(*this); }

// A fiber lives while there are jobs for it.
class Process::FiberWorkers final : public Workers {
 public:
  FiberWorkers(Process& process, size_t count) : process_(process), count_(count) {}
  ~FiberWorkers() override { Stop(); }

  void Post(std::function<void()> job) override {
    if (stopped_) return;
    jobs_.push_back(std::move(job));
    if (working_ == count_) return;
    ++working_;
    process_.Begin(std::make_shared<FiberThread>([this] { Work(); }));
  }
  void Stop() override {
    stopped_ = true;
    jobs_.clear();
    Finish();
  }
  void Finish() override {
    while (working_ > 0) {
      Wait wait(process_);
      process_.calls_.erase(wait.number_);
      idle_ = wait.wake();
      wait.Await();
    }
  }

 private:
  void Work() {
    while (!jobs_.empty()) {
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
    if (--working_ == 0 && idle_) std::exchange(idle_, nullptr)();
  }

  Process& process_;
  const size_t count_;
  bool stopped_ = false;
  size_t working_ = 0;
  std::deque<std::function<void()>> jobs_;
  std::function<void()> idle_;
};

std::unique_ptr<Workers> Process::MakeWorkers(size_t count) {
  return std::make_unique<FiberWorkers>(*this, count);
}

}  // namespace lunkeeper::fencing::sim
