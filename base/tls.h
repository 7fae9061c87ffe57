#pragma once
// TLS for gRPC from PEM files. The files are read again every second, and new connections use what they hold
// then. So replace certificate and key together, by renaming a folder or a symbolic link, as Kubernetes does.
// Thread-safe. Failure: FAILED_PRECONDITION for a file that cannot be read or used; the message names it.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct TlsFiles {
  std::string certificate;  // with its chain
  std::string key;
  std::string ca;  // of the other side's certificate
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Each side shows a certificate, and checks the other's.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsClient(const TlsFiles& files);
// Whatever the files are now: no connection is made before they are right.
std::shared_ptr<grpc::ChannelCredentials> UncheckedMutualTlsClient(const TlsFiles& files);

// Only the server shows a certificate; the client proves itself in another way, such as a token.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServer(const std::string& certificate,
                                                                   const std::string& key);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsClient(const std::string& ca);

// The end of validity of the first certificate in the file.
absl::StatusOr<absl::Time> CertificateEnds(const std::string& path);

}  // namespace lunkeeper
