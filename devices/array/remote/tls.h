#pragma once
// Mutual TLS for gRPC from files: both sides show a certificate, and both check the other's against `ca`. The
// files are looked at every second, and new connections use what is there then; so replace them together, by
// renaming a folder or moving a symbolic link, as Kubernetes does. Thread-safe.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper {

// PEM files.
struct TlsFiles {
  std::string certificate;  // with its chain
  std::string key;
  std::string ca;  // who signs the other side's
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// FAILED_PRECONDITION: a file that cannot be read, is no PEM, or a key that is not the certificate's; the
// message names it.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsClient(const TlsFiles& files);

}  // namespace lunkeeper
