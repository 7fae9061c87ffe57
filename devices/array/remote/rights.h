#pragma once
// Who calls an array agent, and what it may do: read from the client's verified certificate, never from a
// request. The certificate carries one DNS name (subjectAltName) of the form
//
//   controller.<cluster>.cluster.lunkeeper.io   everything, of that cluster's volumes and nodes
//   reader.<cluster>.cluster.lunkeeper.io       get and list only, without secrets
//
// where <cluster> is 1 to 63 of a-z, 0-9 and -. It is a name and no address: nobody resolves it, and every
// tool that makes certificates can write it. Pure functions, thread-safe.

#include <grpcpp/server_context.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/types.h"

namespace lunkeeper {

enum class Right { kReader, kController };

struct Caller {
  ClusterId cluster;
  Right right = Right::kReader;
};

// From all DNS names of a certificate; others beside ours are ignored. PERMISSION_DENIED: none of ours, or
// more than one.
absl::StatusOr<Caller> CallerNamed(const std::vector<std::string>& dns_names);
// The same of the client that makes this call. Its names are proven: the handshake fails for a client whose
// certificate the configured CA has not signed (base/tls.cc).
absl::StatusOr<Caller> CallerOf(const grpc::ServerContext& context);

}  // namespace lunkeeper
