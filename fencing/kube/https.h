#pragma once
// One HTTPS connection to the API server (HTTP/1.1, kept alive), used by one thread at a time, which does all
// the work itself: there is no thread behind it. The only place that names Beast and OpenSSL.
//
// Every call ends at its deadline, or within moments of a request to stop from another thread. A peer that
// vanished without a word is noticed within about five seconds (TCP keep-alive). A connection on which a call
// failed is of no more use. Failure: DEADLINE_EXCEEDED, CANCELLED (asked to stop), UNAUTHENTICATED (the
// server did not prove itself, or did not take our certificate), FAILED_PRECONDITION (files), UNAVAILABLE:
// not known whether a request that was sent has been carried out.

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

// How long the caller will wait.
struct Limits {
  absl::Time deadline;
  std::stop_token stop = {};
};

struct HttpRequest {
  std::string what;  // what is being done and on what, for errors: "delete pods/db/db-0"
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
  virtual absl::StatusOr<HttpHead> Ask(const HttpRequest& request, const std::string& token,
                                       const Limits& limits) = 0;
  // The next bytes of the reply's body, good until the next call; empty at its end.
  virtual absl::StatusOr<std::string_view> Read(const Limits& limits) = 0;
  // The reply was read to its end, and the peer has not closed since.
  virtual bool Reusable() = 0;
};

// A host's name is looked up by the C library, whose own limits of time count on top of ours.
absl::StatusOr<std::unique_ptr<HttpsConnection>> ConnectHttps(const KubeConfig& config, const Limits& limits);

}  // namespace lunkeeper::kube
