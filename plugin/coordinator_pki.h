#pragma once
// The coordinator's certificates in a cluster, and when each is replaced. A pure function: it is given what
// there is and the time, and returns what there is to be. Its caller stores that and calls it again every
// day.
//
// An authority is replaced in two steps, so that no connection fails: at first everybody trusts the next one
// as well, and it signs only when they have had time to read that.
//   |-- current signs ---------------------------|-- still trusted until it ends --|
//                        2/3 of its life: next made and trusted, then signs an hour later, at the next call
// Failure: FAILED_PRECONDITION for an authority that cannot be read, which is not replaced, since all nodes
// trust it.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/certificate.h"

namespace lunkeeper {

struct CoordinatorPki {
  KeyPair authority;             // signs now; empty: there is none yet
  KeyPair next_authority;        // will sign; empty: none
  std::string former_authority;  // a certificate that is still trusted; empty: none
  KeyPair server;                // the coordinator's
  std::string nodes_trust;       // what nodes are given to trust, the newest first
};

struct PkiOptions {
  std::string host;  // the DNS name by which nodes reach the coordinator
  absl::Duration server_life = absl::Hours(24 * 90);
  absl::Duration authority_life = absl::Hours(24 * 3650);
};

// Replaces what is missing, does not fit or has less than a third of its life left.
absl::StatusOr<CoordinatorPki> RenewCoordinatorPki(CoordinatorPki pki, const PkiOptions& options,
                                                   absl::Time now);

}  // namespace lunkeeper
