#include "fencing/kube/call_pool.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "fencing/kube/api_error.h"

namespace lunkeeper::kube {
namespace {

constexpr size_t kMostErrorBytes = 64 << 10;
// For opening one connection beforehand, and between attempts that fail.
constexpr absl::Duration kOpenTime = absl::Seconds(5);
constexpr absl::Duration kOpenPause = absl::Seconds(1);

bool IsGood(const HttpHead& head) { return head.status >= 200 && head.status < 300; }

// The server did not take the request, and says when to come back.
std::optional<absl::Duration> ComeBackAfter(const HttpHead& head) {
  return head.status == 429 || head.status == 503 ? head.retry_after : std::nullopt;
}

absl::Status ReadError(HttpsConnection& connection, const HttpRequest& request, const HttpHead& head,
                       const Limits& limits) {
  std::string body;
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view bytes, connection.Read(limits));
    if (bytes.empty()) break;
    if (body.size() < kMostErrorBytes) body.append(bytes);
  }
  return ReplyError(request.what, head.status, body);
}

absl::Status ReadBody(HttpsConnection& connection, const CallPool::BodySink& sink, const Limits& limits) {
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view bytes, connection.Read(limits));
    if (bytes.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(sink(bytes));
  }
}

}  // namespace

bool WaitUntil(absl::Time time, const std::stop_token& stop) {
  absl::Notification stopped;
  const std::stop_callback notify(stop, [&stopped] { stopped.Notify(); });
  return !stopped.WaitForNotificationWithDeadline(time);
}

struct CallPool::Attempt {
  absl::Status status;
  bool answered = false;                                     // the head of a reply came
  std::optional<absl::Duration> retry_after = std::nullopt;  // not taken: send it again
};

CallPool::CallPool(KubeConfig config) : config_(std::move(config)) {
  if (config_.open_all) opener_ = std::jthread([this](const std::stop_token& stop) { OpenAll(stop); });
}

// Calls neither wait for this nor fail with it: when a server takes no more connections, they use those that
// are open.
void CallPool::OpenAll(const std::stop_token& stop) {
  const std::stop_callback look_again(stop, [this] { absl::MutexLock lock(&mu_); });
  const auto wanted = [this, &stop]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return Open() < config_.connections || stop.stop_requested();
  };
  while (true) {
    mu_.LockWhen(absl::Condition(&wanted));
    mu_.Unlock();
    if (stop.stop_requested()) return;
    if (auto connection = OpenOne(stop)) {
      absl::MutexLock lock(&mu_);
      if (Open() < config_.connections) idle_.push_back(std::move(connection));
    } else if (!WaitUntil(absl::Now() + kOpenPause, stop)) {
      return;
    }
  }
}

// With one question asked, of whatever answer: only then is it known to be good.
std::unique_ptr<HttpsConnection> CallPool::OpenOne(const std::stop_token& stop) {
  const Limits limits{absl::Now() + kOpenTime, stop};
  auto connected = ConnectHttps(config_, limits);
  if (!connected.ok()) return nullptr;
  std::unique_ptr<HttpsConnection> connection = *std::move(connected);
  const HttpRequest request{.what = "get the API server's version", .method = "GET", .target = "/version"};
  Try(
      *connection, request, [](std::string_view) { return absl::OkStatus(); }, limits)
      .status.IgnoreError();
  return connection->Reusable() ? std::move(connection) : nullptr;
}

absl::Status CallPool::Call(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                            const Limits& limits) {
  while (true) {
    Attempt attempt = TryOnce(request, repeatable, sink, limits);
    if (!attempt.retry_after) return attempt.status;
    const absl::Time again = absl::Now() + *attempt.retry_after;
    if (again >= limits.deadline || !WaitUntil(again, limits.stop)) return attempt.status;
  }
}

CallPool::Attempt CallPool::TryOnce(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                                    const Limits& limits) {
  if (absl::Status status = TakeTurn(request, limits); !status.ok()) return {std::move(status)};
  std::unique_ptr<HttpsConnection> connection = TakeIdle();
  const bool was_idle = connection != nullptr;
  Attempt attempt;
  if (was_idle) attempt = Try(*connection, request, sink, limits);
  const bool closed = was_idle && !attempt.answered && absl::IsUnavailable(attempt.status);
  if (!was_idle || (closed && repeatable == Repeatable::kYes)) {
    connection.reset();
    if (auto connected = ConnectHttps(config_, limits); connected.ok()) {
      connection = *std::move(connected);
      attempt = Try(*connection, request, sink, limits);
    } else {
      attempt = {connected.status()};
    }
  }
  EndTurn(std::move(connection));
  return attempt;
}

CallPool::Attempt CallPool::Try(HttpsConnection& connection, const HttpRequest& request, const BodySink& sink,
                                const Limits& limits) {
  const auto token = ReadToken(config_);
  if (!token.ok()) return {token.status()};
  const auto head = connection.Ask(request, *token, limits);
  if (!head.ok()) return {head.status()};
  if (IsGood(*head)) return {ReadBody(connection, sink, limits), true};
  return {ReadError(connection, request, *head, limits), true, ComeBackAfter(*head)};
}

absl::StatusOr<std::unique_ptr<HttpsConnection>> CallPool::OpenStream(const HttpRequest& request,
                                                                      const Limits& limits) {
  ASSIGN_OR_RETURN(auto connection, ConnectHttps(config_, limits));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(config_));
  ASSIGN_OR_RETURN(const HttpHead head, connection->Ask(request, token, limits));
  if (!IsGood(head)) return ReadError(*connection, request, head, limits);
  return connection;
}

absl::Status CallPool::TakeTurn(const HttpRequest& request, const Limits& limits) {
  const std::stop_callback look_again(limits.stop, [this] { absl::MutexLock lock(&mu_); });
  const auto ready = [this, &limits]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return HasRoom() || limits.stop.stop_requested();
  };
  absl::MutexLock lock(&mu_);
  if (!mu_.AwaitWithDeadline(absl::Condition(&ready), limits.deadline)) {
    return absl::DeadlineExceededError(absl::StrCat(request.what, ": all ", config_.connections,
                                                    " connections to the API server were busy for too long"));
  }
  if (limits.stop.stop_requested())
    return absl::CancelledError(absl::StrCat(request.what, ": given up, as was asked"));
  ++busy_;
  return absl::OkStatus();
}

std::unique_ptr<HttpsConnection> CallPool::TakeIdle() {
  absl::MutexLock lock(&mu_);
  while (!idle_.empty()) {
    auto connection = std::move(idle_.front());
    idle_.pop_front();
    if (connection->Reusable()) return connection;
  }
  return nullptr;
}

void CallPool::EndTurn(std::unique_ptr<HttpsConnection> connection) {
  const bool keep = connection != nullptr && connection->Reusable();
  absl::MutexLock lock(&mu_);
  --busy_;
  if (keep) idle_.push_back(std::move(connection));
}

}  // namespace lunkeeper::kube
