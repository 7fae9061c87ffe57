#include "fencing/kube/call_pool.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_signal.h"
#include "fencing/kube/api_error.h"

// A call takes these steps on its caller's thread:
//
//   TakeTurn: wait until fewer than `connections` calls run
//   TakeIdle: the longest idle connection that still works, or none -> ConnectTwice
//   TryOn: send, read the reply
//   EndTurn: return the connection, if its reply was read to the end
//
// A connection is either in `idle_` or owned by one call, so the mutex is held for bookkeeping only, never
// during input or output. Each watch has a connection outside of the pool.
namespace lunkeeper::kube {
namespace {

constexpr size_t kMostErrorBytes = 64 << 10;
// For the thread that opens connections in advance: the limit for one, and the pause after a failure.
constexpr absl::Duration kOpenTime = absl::Seconds(5);
constexpr absl::Duration kOpenPause = absl::Seconds(1);
// For the first attempt at a connection. One that hangs may lead to another server the next time.
constexpr absl::Duration kFirstConnect = absl::Seconds(1);
// A call that waited for less long shows nothing of its connection.
constexpr absl::Duration kSilent = absl::Seconds(1);
// Where a server is slow and not hung, making connections anew would add to its load.
constexpr absl::Duration kDropPause = absl::Seconds(30);

bool IsGood(const HttpHead& head) { return head.status >= 200 && head.status < 300; }

// Set when the server rejected the request before doing anything, and says when to come back.
std::optional<absl::Duration> RetryAfter(const HttpHead& head) {
  return head.status == 429 || head.status == 503 ? head.retry_after : std::nullopt;
}

// Reads an error's body to the end even beyond the kept part, so that the connection can be used again.
absl::Status ReadError(HttpsConnection& connection, const HttpRequest& request, const HttpHead& head,
                       const Limits& limits) {
  std::string body;
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view bytes, connection.ReadBytes(limits));
    if (bytes.empty()) break;
    if (body.size() < kMostErrorBytes) body.append(bytes);
  }
  return ReplyError(request.what, head.status, body);
}

absl::Status ReadBody(HttpsConnection& connection, const CallPool::BodySink& sink, const Limits& limits) {
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view bytes, connection.ReadBytes(limits));
    if (bytes.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(sink(bytes));
  }
}

}  // namespace

bool PauseFor(absl::Duration time, const std::stop_token& stop) {
  SteadySignal stopped;
  const std::stop_callback notify(stop, [&stopped] { stopped.Set(); });
  return !stopped.WaitFor(time);
}

struct CallPool::Attempt {
  absl::Status status;
  bool answered = false;                                     // the head of a reply arrived
  std::optional<absl::Duration> retry_after = std::nullopt;  // rejected: send it again after this time
};

CallPool::CallPool(KubeConfig config) : config_(std::move(config)) {
  if (config_.open_all) opener_ = std::jthread([this](const std::stop_token& stop) { KeepAllOpen(stop); });
}

// The opener's thread. Calls neither wait for it nor fail with it: when the server accepts no more
// connections, calls share the open ones.
void CallPool::KeepAllOpen(const std::stop_token& stop) {
  const std::stop_callback look_again(stop, [this] { SteadyLock lock(&mu_); });
  const auto wanted = [this, &stop]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return OpenCount() < config_.connections || stop.stop_requested();
  };
  while (true) {
    {
      SteadyLock lock(&mu_);
      mu_.Await(absl::Condition(&wanted));
    }
    if (stop.stop_requested()) return;
    if (auto connection = OpenOne(stop)) {
      SteadyLock lock(&mu_);
      if (OpenCount() < config_.connections)
        idle_.push_back({std::move(connection), std::chrono::steady_clock::now()});
    } else if (!PauseFor(kOpenPause, stop)) {
      return;
    }
  }
}

// Makes one call on the new connection, whatever its answer. A TLS 1.3 server may refuse our certificate
// after the handshake, which shows with the first read.
std::unique_ptr<HttpsConnection> CallPool::OpenOne(const std::stop_token& stop) {
  const Limits limits{absl::Now() + kOpenTime, stop};
  auto connected = ConnectTwice(limits);
  if (!connected.ok()) return nullptr;
  std::unique_ptr<HttpsConnection> connection = *std::move(connected);
  const HttpRequest request{.what = "get the API server's version", .method = "GET", .target = "/version"};
  TryOn(
      *connection, request, [](std::string_view) { return absl::OkStatus(); }, limits)
      .status.IgnoreError();
  return connection->IsReusable() ? std::move(connection) : nullptr;
}

absl::StatusOr<std::unique_ptr<HttpsConnection>> CallPool::ConnectTwice(const Limits& limits) const {
  Limits first = limits;
  first.deadline =
      std::min(first.deadline, std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kFirstConnect));
  auto connected = ConnectHttps(config_, first);
  return absl::IsDeadlineExceeded(connected.status()) ? ConnectHttps(config_, limits) : std::move(connected);
}

// Each retry takes its turn anew, so a call that waits for the server to recover blocks no other.
absl::Status CallPool::MakeCall(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                                const Limits& limits) {
  while (true) {
    Attempt attempt = TryOnce(request, repeatable, sink, limits);
    if (!attempt.retry_after) return attempt.status;
    const absl::Duration pause = *attempt.retry_after;
    if (pause >= limits.TimeLeft() || !PauseFor(pause, limits.stop)) return attempt.status;
  }
}

CallPool::Attempt CallPool::TryOnce(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                                    const Limits& limits) {
  if (absl::Status status = TakeTurn(request, limits); !status.ok()) return {std::move(status)};
  std::unique_ptr<HttpsConnection> connection = TakeIdle();
  const bool was_idle = connection != nullptr;
  Attempt attempt;
  const SteadyTime asked = std::chrono::steady_clock::now();
  if (was_idle) attempt = TryOn(*connection, request, sink, limits);
  if (was_idle && !attempt.answered && absl::IsDeadlineExceeded(attempt.status)) DropSilent(asked);
  // The server closes idle connections when it likes, so a request may be lost on the way without having been
  // seen. It may also have been seen: hence only repeatable calls are sent again.
  const bool closed = was_idle && !attempt.answered && absl::IsUnavailable(attempt.status);
  if (!was_idle || (closed && repeatable == Repeatable::kYes)) {
    connection.reset();
    if (auto connected = ConnectTwice(limits); connected.ok()) {
      connection = *std::move(connected);
      attempt = TryOn(*connection, request, sink, limits);
    } else {
      attempt = {connected.status()};
    }
  }
  EndTurn(std::move(connection));
  return attempt;
}

// The token is read for each request: kubelet replaces the file while the process runs.
CallPool::Attempt CallPool::TryOn(HttpsConnection& connection, const HttpRequest& request,
                                  const BodySink& sink, const Limits& limits) {
  const auto token = ReadToken(config_);
  if (!token.ok()) return {token.status()};
  const auto head = connection.SendRequest(request, *token, limits);
  if (!head.ok()) return {head.status()};
  if (IsGood(*head)) return {ReadBody(connection, sink, limits), true};
  return {ReadError(connection, request, *head, limits), true, RetryAfter(*head)};
}

absl::StatusOr<std::unique_ptr<HttpsConnection>> CallPool::OpenStream(const HttpRequest& request,
                                                                      const Limits& limits) {
  ASSIGN_OR_RETURN(auto connection, ConnectTwice(limits));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(config_));
  ASSIGN_OR_RETURN(const HttpHead head, connection->SendRequest(request, token, limits));
  if (!IsGood(head)) return ReadError(*connection, request, head, limits);
  return connection;
}

absl::Status CallPool::TakeTurn(const HttpRequest& request, const Limits& limits) {
  // Waiters' conditions are evaluated when a lock is released, so locking once wakes this one.
  const std::stop_callback look_again(limits.stop, [this] { SteadyLock lock(&mu_); });
  const auto ready = [this, &limits]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return HasRoom() || limits.stop.stop_requested();
  };
  SteadyLock lock(&mu_);
  if (!mu_.AwaitUntil(absl::Condition(&ready), SteadyDeadline(limits.TimeLeft()))) {
    return absl::DeadlineExceededError(absl::StrCat(request.what, ": all ", config_.connections,
                                                    " connections to the API server were busy for too long"));
  }
  if (limits.stop.stop_requested())
    return absl::CancelledError(absl::StrCat(request.what, ": given up, as was asked"));
  ++busy_;
  return absl::OkStatus();
}

std::unique_ptr<HttpsConnection> CallPool::TakeIdle() {
  SteadyLock lock(&mu_);
  while (!idle_.empty()) {
    auto connection = std::move(idle_.front().connection);
    idle_.pop_front();
    if (connection->IsReusable()) return connection;
  }
  return nullptr;
}

// IsReusable makes a system call, so it runs before the lock is taken.
void CallPool::EndTurn(std::unique_ptr<HttpsConnection> connection) {
  const bool keep = connection != nullptr && connection->IsReusable();
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyLock lock(&mu_);
  --busy_;
  if (!keep) return;
  answered_ = now;
  idle_.push_back({std::move(connection), now});
}

// Each that answered before the call began. The others have shown since that they work. The opener makes
// new ones.
void CallPool::DropSilent(SteadyTime since) {
  const SteadyTime now = std::chrono::steady_clock::now();
  std::vector<Kept> dropped;  // closed without the lock
  SteadyLock lock(&mu_);
  if (absl::FromChrono(now - since) < kSilent || answered_ < since) return;
  if (dropped_ && absl::FromChrono(now - *dropped_) < kDropPause) return;
  dropped_ = now;
  while (!idle_.empty() && idle_.front().answered < since) {
    dropped.push_back(std::move(idle_.front()));
    idle_.pop_front();
  }
}

}  // namespace lunkeeper::kube
