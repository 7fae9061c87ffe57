#pragma once
// The certificates that a cluster makes for itself: one authority, and a leaf for each program that shows
// one. It says when each is replaced. A pure function: it is given what there is and the time, and returns
// what there is to be. Its caller stores that and calls it again every day.
//
// An authority is replaced in steps, so that no connection fails: at first everybody trusts the next one as
// well, and it signs only when they have had time to read that.
//   |-- current signs ---------------------|-- still trusted until it ends --|
//                   2/3 of its life: next made and trusted; it signs once all are known to trust it
// Failure: FAILED_PRECONDITION for an authority that cannot be read, which is not replaced, since everybody
// trusts it.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/certificate.h"

namespace lunkeeper {

// What one program shows, and what it trusts in return.
struct LeafCertificate {
  CertificateUse use = CertificateUse::kServer;
  std::string name;   // the DNS name in it
  KeyPair pair;       // empty: there is none yet
  std::string trust;  // authorities, the newest first; empty: it was not told yet
};

struct ClusterPki {
  KeyPair authority;             // signs now; empty: there is none yet
  KeyPair next_authority;        // will sign; empty: none
  std::string former_authority;  // a certificate that is still trusted; empty: none
  // Since when everybody is known to trust the next authority.
  absl::Time next_trusted = absl::InfiniteFuture();
  std::string trust;  // for those who show no certificate: the nodes; empty: they were not told yet
  std::vector<LeafCertificate> leaves;
};

struct PkiOptions {
  absl::Duration leaf_life = absl::Hours(24 * 90);
  absl::Duration authority_life = absl::Hours(24 * 3650);
};

// Replaces what is missing, does not fit or has less than a third of its life left.
absl::StatusOr<ClusterPki> RenewClusterPki(ClusterPki pki, const PkiOptions& options, absl::Time now);

}  // namespace lunkeeper
