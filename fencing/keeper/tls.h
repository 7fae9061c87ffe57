#pragma once
// TLS for the keeper's channel, from PEM files: the controller shows a certificate, and the node a token. The
// files are looked at every second, and new connections use what is there then. Thread-safe. Failure:
// FAILED_PRECONDITION for a file that cannot be used now; the message names it.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper {

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> KeeperServerTls(const std::string& certificate,
                                                                         const std::string& key);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> KeeperClientTls(const std::string& ca);

}  // namespace lunkeeper
