#include "base/executor.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/steady_signal.h"

namespace lunkeeper {
namespace {

class RealThread final : public Thread {
 public:
  explicit RealThread(std::function<void()> work) : thread_(std::move(work)) {}
  ~RealThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealSignal final : public Signal {
 public:
  void Set() override { signal_.Set(); }
  bool WaitFor(absl::Duration time) override { return signal_.WaitFor(time); }

 private:
  SteadySignal signal_;
};

class RealWorkers final : public Workers {
 public:
  explicit RealWorkers(size_t count) : pool_(count) {}
  void Post(std::function<void()> job) override { boost::asio::post(pool_, std::move(job)); }
  void Stop() override {
    pool_.stop();
    pool_.join();
  }
  void Finish() override { pool_.join(); }

 private:
  boost::asio::thread_pool pool_;
};

class MachineExecutor final : public Executor {
 public:
  absl::Duration SteadyNow() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time WallNow() const override { return absl::Now(); }
  std::unique_ptr<Thread> StartThread(std::function<void()> work) override {
    return std::make_unique<RealThread>(std::move(work));
  }
  std::unique_ptr<Signal> MakeSignal() override { return std::make_unique<RealSignal>(); }
  std::unique_ptr<Workers> MakeWorkers(size_t count) override { return std::make_unique<RealWorkers>(count); }
};

}  // namespace

Executor& RealExecutor() {
  static MachineExecutor executor;
  return executor;
}

}  // namespace lunkeeper
