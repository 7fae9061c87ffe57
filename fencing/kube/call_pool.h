#pragma once
// Calls to the API server over a bounded number of connections that are kept and used again, in turn: a
// server closes what is idle for long. With `open_all` a thread of the pool opens them, and asks each for the
// server's version once; no call waits for it.
//
// Thread-safe; a call blocks its thread and ends at its deadline. It is sent again in two cases only: the
// server says that it did not take it and when to come back (429 or 503 with Retry-After), or a kept
// connection turns out to be closed and the call is marked as repeatable. Failure: as in https.h and
// api_error.h.

#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "fencing/kube/config.h"
#include "fencing/kube/https.h"

namespace lunkeeper::kube {

// May be carried out twice without another effect than once.
enum class Repeatable { kNo, kYes };

class CallPool {
 public:
  // Takes the bytes of a good reply's body as they come. An error ends the call.
  using BodySink = std::function<absl::Status(std::string_view bytes)>;

  explicit CallPool(KubeConfig config);

  absl::Status Call(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                    const Limits& limits);

  // A connection of its own, of which the reply's head has come and was good; for watches.
  absl::StatusOr<std::unique_ptr<HttpsConnection>> OpenStream(const HttpRequest& request,
                                                              const Limits& limits);

 private:
  struct Attempt;

  void OpenAll(const std::stop_token& stop);
  std::unique_ptr<HttpsConnection> OpenOne(const std::stop_token& stop);
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return busy_ < config_.connections; }
  size_t Open() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return busy_ + idle_.size(); }
  absl::Status TakeTurn(const HttpRequest& request, const Limits& limits) ABSL_LOCKS_EXCLUDED(mu_);
  void EndTurn(std::unique_ptr<HttpsConnection> connection) ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<HttpsConnection> TakeIdle() ABSL_LOCKS_EXCLUDED(mu_);
  Attempt Try(HttpsConnection& connection, const HttpRequest& request, const BodySink& sink,
              const Limits& limits);
  Attempt TryOnce(const HttpRequest& request, Repeatable repeatable, const BodySink& sink,
                  const Limits& limits);

  const KubeConfig config_;
  absl::Mutex mu_;
  size_t busy_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::unique_ptr<HttpsConnection>> idle_ ABSL_GUARDED_BY(mu_);  // the next to be used first
  std::jthread opener_;  // with `open_all`; last, as it uses what is above
};

// Waits until then; false when asked to stop.
bool WaitUntil(absl::Time time, const std::stop_token& stop);

}  // namespace lunkeeper::kube
