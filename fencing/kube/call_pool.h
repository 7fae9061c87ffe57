#pragma once
// Makes calls to the API server over a bounded number of connections. Connections are kept and used in turn,
// as the server closes connections that stay idle. With `open_all` a thread of the pool opens all of them
// in advance; no call waits for that.
//
// Behind one address there may be several servers, and one of them may hang while its connections stay up. A
// kept connection that does not answer while others do takes all with it that have not answered since. One
// that is not open within a second is tried once more.
//
// Thread-safe; a call blocks its thread and ends at its deadline. It is sent again in two cases only: when
// the server rejects it and says when to come back (429 or 503 with Retry-After), and when a kept connection
// turns out to be closed and the call is repeatable. Failure: as in https.h and api_error.h.

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/steady_mutex.h"
#include "fencing/kube/config.h"
#include "fencing/kube/https.h"

namespace lunkeeper::kube {

// Whether doing a call twice has the same effect as doing it once.
enum class Repeatable { kNo, kYes };

class CallPool {
 public:
  // Receives the body of a successful reply in pieces, as they arrive. An error ends the call.
  using BodySink = std::function<absl::Status(std::string_view bytes)>;

  explicit CallPool(KubeConfig config);

  absl::Status MakeCall(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                        const Limits& limits);

  // For watches: opens a connection of its own and reads the reply's head, which was a success.
  absl::StatusOr<std::unique_ptr<HttpsConnection>> OpenStream(const HttpRequest& request,
                                                              const Limits& limits);

 private:
  struct Attempt;
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Kept {
    std::unique_ptr<HttpsConnection> connection;
    SteadyTime answered;  // its last call
  };

  void KeepAllOpen(const std::stop_token& stop);
  absl::StatusOr<std::unique_ptr<HttpsConnection>> ConnectTwice(const Limits& limits) const;
  void DropSilent(SteadyTime since) ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<HttpsConnection> OpenOne(const std::stop_token& stop);
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return busy_ < config_.connections; }
  size_t OpenCount() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return busy_ + idle_.size(); }
  absl::Status TakeTurn(const HttpRequest& request, const Limits& limits) ABSL_LOCKS_EXCLUDED(mu_);
  void EndTurn(std::unique_ptr<HttpsConnection> connection) ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<HttpsConnection> TakeIdle() ABSL_LOCKS_EXCLUDED(mu_);
  Attempt TryOn(HttpsConnection& connection, const HttpRequest& request, const BodySink& sink,
                const Limits& limits);
  Attempt TryOnce(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                  const Limits& limits);

  const KubeConfig config_;
  SteadyMutex mu_;
  size_t busy_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Kept> idle_ ABSL_GUARDED_BY(mu_);              // the longest idle first
  SteadyTime answered_ ABSL_GUARDED_BY(mu_);                // any call, last
  std::optional<SteadyTime> dropped_ ABSL_GUARDED_BY(mu_);  // silent connections, last
  std::jthread opener_;  // with `open_all`; last: it uses the other members
};

// False: `stop` came first.
bool PauseFor(absl::Duration time, const std::stop_token& stop);

}  // namespace lunkeeper::kube
