#pragma once
// Where the API server is, and how this process authenticates: by a service account's token or by a client
// certificate. The token's file is read for each request and the certificates' files for each connection, so
// a renewed one is used at once. Plain values; thread-safe.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper::kube {

struct KubeConfig {
  std::string server;            // https://HOST[:PORT]; an IPv6 address in brackets
  std::string ca_file;           // PEM; signs the API server's certificate
  std::string token_file;        // empty: no token
  std::string certificate_file;  // PEM; empty: no client certificate
  std::string key_file;
  // The number of calls that run at once; further calls wait for their turn. Watches do not count.
  size_t connections = 32;
  // Opens all connections in advance, and again when they are lost. A burst of calls then needs no
  // handshakes, each of which costs the server as much time as a call. Of use only to a process that calls
  // often, as the server closes idle connections.
  bool open_all = false;
};

// From what Kubernetes gives every pod. FAILED_PRECONDITION: this is no pod.
absl::StatusOr<KubeConfig> InClusterConfig();

// The namespace of this pod. FAILED_PRECONDITION: this is no pod.
absl::StatusOr<std::string> InClusterNamespace();

struct ServerAddress {
  std::string host;
  std::string port;
};
// INVALID_ARGUMENT: the text is not https://HOST[:PORT].
absl::StatusOr<ServerAddress> ParseServer(const std::string& server);

// The token for the next request; empty without a token file. FAILED_PRECONDITION when it cannot be read.
absl::StatusOr<std::string> ReadToken(const KubeConfig& config);

}  // namespace lunkeeper::kube
