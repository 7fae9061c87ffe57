#pragma once
// A very small HTTP server for /metrics, /healthz and /readyz. It answers GET and HEAD of fixed paths and
// nothing else. A few threads of its own serve the connections and run the pages' functions, so that one slow
// page delays no other. A request may have 4 KiB and take five seconds; otherwise its connection is closed.
// Nobody who holds connections keeps others out: beyond 64, a new one takes the place of the oldest one of
// the address that has the most. Thread-safe. The destructor closes all connections and joins the threads.
// Failure: INVALID_ARGUMENT for an address that is not `host:port`, UNAVAILABLE when it cannot be listened
// on.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper {

struct HttpReply {
  int status = 200;
  std::string body;
};
// Thread-safe functions.
using HttpPages = std::map<std::string, std::function<HttpReply()>>;

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  // Where it really listens, for an address whose port was 0.
  virtual uint16_t port() const = 0;
};

// `address` is host:port, [v6]:port or :port (all addresses); the host is a number, no name is looked up.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const std::string& address, HttpPages pages);

}  // namespace lunkeeper
