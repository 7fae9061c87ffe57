// One thread runs all attempts, each a socket and a timer; the first of the two to complete ends the attempt
// and cancels the other. Attempts in progress when the prober is destroyed end without a call.
#include "base/tcp_prober.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace lunkeeper {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kTimeout(400);

struct Attempt {
  explicit Attempt(asio::io_context& io) : socket(io), timer(io) {}
  tcp::socket socket;
  asio::steady_timer timer;
  std::function<void(ProbeResult)> done;  // empty once it was called

  void FinishAttempt(std::optional<ProbeResult> result) {
    // Closing the socket completes the connect with operation_aborted; by then `done` is empty.
    boost::system::error_code ignored;
    timer.cancel(ignored);
    socket.close(ignored);
    const auto call = std::exchange(done, nullptr);
    if (call && result) call(*result);
  }
};

// A refusal is an answer as good as an accepted connection: only a living kernel sends a reset. None: the
// error is of this machine, such as no free descriptor, and says nothing.
std::optional<ProbeResult> InterpretResult(const boost::system::error_code& error) {
  if (!error) return ProbeResult::kAccepted;
  if (error == asio::error::connection_refused || error == asio::error::connection_reset)
    return ProbeResult::kRefused;
  if (error == asio::error::host_unreachable || error == asio::error::timed_out)
    return ProbeResult::kUnanswered;
  if (error == asio::error::network_unreachable || error == asio::error::network_down)
    return ProbeResult::kNoRoute;
  return std::nullopt;
}

class AsioProber final : public Prober {
 public:
  AsioProber() : thread_([this] { io_.run(); }) {}
  ~AsioProber() override {
    io_.stop();
    thread_.join();
  }

  void Probe(const std::string& address, uint16_t port, std::function<void(ProbeResult)> done) override {
    boost::system::error_code wrong;
    const auto number = asio::ip::make_address(address, wrong);
    // The address comes from a Node object, and a name would need a resolver that may hang.
    if (wrong) return;
    asio::post(io_, [this, to = tcp::endpoint(number, port), done = std::move(done)]() mutable {
      BeginAttempt(to, std::move(done));
    });
  }

 private:
  void BeginAttempt(const tcp::endpoint& to, std::function<void(ProbeResult)> done) {
    auto attempt = std::make_shared<Attempt>(io_);
    attempt->done = std::move(done);
    attempt->timer.expires_after(kTimeout);
    // Both handlers hold the attempt; it is freed with the second of them.
    attempt->timer.async_wait([attempt](const boost::system::error_code& ended) {
      if (!ended) attempt->FinishAttempt(ProbeResult::kUnanswered);
    });
    attempt->socket.async_connect(to, [attempt](const boost::system::error_code& error) {
      attempt->FinishAttempt(InterpretResult(error));
    });
  }

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace

std::unique_ptr<Prober> MakeProber() { return std::make_unique<AsioProber>(); }

}  // namespace lunkeeper
