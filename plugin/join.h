#pragma once
// A storage host outside the cluster that gets its agent's certificate from the cluster, which makes and
// renews it (pki_command.h). The host is invited by a Secret: an account that may read one other Secret, the
// one with the certificate. `lunkeeper join` keeps that in a folder; a timer runs it again each day.
//
// The folder: `api.json` (which server, which Secret), `api-ca.crt`, `api-token`, and `tls`, a link to the
// folder with tls.crt, tls.key and ca.crt, which is replaced as a whole. Only its owner can read any of it.
//
// Plain functions; one process at a time for a folder. May be repeated: what is there and good stays as it
// is, and after a failure the certificate that was there stays in use.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace CLI {
class App;
}

namespace lunkeeper {

struct Invitation {
  std::string server;  // https://HOST[:PORT] of the cluster's API server
  std::string ca;      // PEM; signs the server's certificate
  std::string token;
  std::string space, secret;  // the Secret with the certificate
};

// `document`: the invitation's Secret as `kubectl get secret NAME --output json` prints it. INVALID_ARGUMENT:
// it is something else.
absl::StatusOr<Invitation> ParseInvitation(const std::string& document, const std::string& server);

// Keeps it for later calls of FetchCertificate. INTERNAL: the folder cannot be written.
absl::Status KeepInvitation(const std::string& folder, const Invitation& invitation);

// Replaces `tls` if the cluster has another certificate by now. FAILED_PRECONDITION: the folder has no
// invitation, or the Secret no usable certificate. Otherwise the codes of kube_client.h.
absl::Status FetchCertificate(const std::string& folder, absl::Time deadline);

// Adds the command; if it was given it runs while the command line is parsed, and leaves its exit code here.
void AddJoinCommand(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
