#pragma once
// Where the API server is and how this process proves itself to it: by a token (a service account's) or by a
// client certificate. The files are read again for each request (token) or connection (certificates), so that
// a renewed one counts at once. Plain values; thread-safe.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper::kube {

struct KubeConfig {
  std::string server;            // https://HOST[:PORT]; an IPv6 number stands in brackets
  std::string ca_file;           // PEM; whom to believe to be the API server
  std::string token_file;        // empty: no token
  std::string certificate_file;  // PEM; empty: no client certificate
  std::string key_file;
  // At most so many calls run at once; more wait for their turn. Watches do not count.
  size_t connections = 32;
  // Opens them all beforehand, and again when they are lost: calls that come all at once find them open, for
  // a handshake takes as much of the server's time as a call. For who calls often: what is not used for a
  // while the server closes.
  bool open_all = false;
};

// As Kubernetes gives it to every pod. FAILED_PRECONDITION outside of one.
absl::StatusOr<KubeConfig> InClusterConfig();

// The namespace of this pod. FAILED_PRECONDITION outside of one.
absl::StatusOr<std::string> InClusterNamespace();

struct ServerAddress {
  std::string host;
  std::string port;
};
// INVALID_ARGUMENT for what is not https://HOST[:PORT].
absl::StatusOr<ServerAddress> ParseServer(const std::string& server);

// The token for the next request; empty without a token file. FAILED_PRECONDITION when it cannot be read.
absl::StatusOr<std::string> ReadToken(const KubeConfig& config);

}  // namespace lunkeeper::kube
