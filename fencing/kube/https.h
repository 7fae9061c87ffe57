#pragma once
// One HTTPS connection to the API server (HTTP/1.1, kept alive). One thread at a time uses it and does all
// the work itself; there is no thread behind it. The only place that names Beast and OpenSSL.
//
// Every call ends at its deadline, or within moments of a stop request from another thread. TCP keep-alive
// notices a dead peer within about five seconds. After a failed call the connection is useless. Failure:
// DEADLINE_EXCEEDED; CANCELLED, asked to stop; UNAUTHENTICATED, one side did not accept the other's
// certificate; FAILED_PRECONDITION, a file cannot be loaded; UNAVAILABLE, the connection broke, and the
// server may or may not have done what a request asked for.

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fencing/kube/config.h"

namespace lunkeeper::kube {

// Until when the caller waits. Made when the call begins: from then on the steady clock counts, so that a
// time of day that is set meanwhile neither ends the call nor keeps it for hours.
struct Limits {
  // NOLINTNEXTLINE(google-explicit-constructor): a time is all that most callers have.
  Limits(absl::Time time, std::stop_token stop_token = {});
  // Not below zero.
  absl::Duration TimeLeft() const;

  absl::Time until;  // as the caller said; a simulated server goes by the caller's own time of day
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

struct HttpRequest {
  std::string what;  // the call and its object, for errors: "delete pods/db/db-0"
  std::string method;
  std::string target;
  std::string content_type = {};  // empty: no body
  std::string body = {};
};

struct HttpHead {
  int status = 0;
  std::optional<absl::Duration> retry_after;
};

class HttpsConnection {
 public:
  virtual ~HttpsConnection() = default;
  // Sends the request and waits for the head of its reply. `token` may be empty.
  virtual absl::StatusOr<HttpHead> SendRequest(const HttpRequest& request, const std::string& token,
                                               const Limits& limits) = 0;
  // The next bytes of the reply's body, valid until the next call; empty at the body's end.
  virtual absl::StatusOr<std::string_view> ReadBytes(const Limits& limits) = 0;
  // Whether the last reply was read to its end and the peer has not closed the connection since.
  virtual bool IsReusable() = 0;
};

// The C library resolves the host's name, and may take longer than the deadline to do so.
absl::StatusOr<std::unique_ptr<HttpsConnection>> ConnectHttps(const KubeConfig& config, const Limits& limits);

}  // namespace lunkeeper::kube
