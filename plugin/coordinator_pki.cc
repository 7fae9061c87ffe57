// How the coordinator's authority is replaced without a moment in which nodes refuse the coordinator. Each
// run of `lunkeeper pki renew` takes at most one step:
//
//   in force      ── in the last third of its life ──>    a next one is made; nodes trust both
//   both trusted  ── for kTrustSpreads ──>                 the next one signs; nodes trust both
//   handed over   ── when the former one has expired ──>   nodes trust the one in force
//
// In one step, nodes that have not yet read the new ConfigMap would refuse the coordinator, and their
// heartbeats would stop. An authority that has expired is replaced at once, as no node accepts it any more.
//
// Pure: the caller stores the result (pki_store.cc). A run that was killed in between finds the stored state,
// and takes the step again.
#include "plugin/coordinator_pki.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr char kAuthorityName[] = "Lunkeeper coordinator CA";
// Clocks differ by less.
constexpr absl::Duration kClockSkew = absl::Minutes(5);
// Kubelet brings a changed ConfigMap to all nodes within about two minutes.
constexpr absl::Duration kTrustSpreads = absl::Hours(1);

Validity LifeFrom(absl::Time now, absl::Duration life) { return {now - kClockSkew, now + life}; }

bool Outlives(const std::string& certificate, absl::Time now) {
  const auto validity = ValidityOf(certificate);
  return validity.ok() && now < validity->until;
}

// More than a third of its life is left.
bool IsFresh(const std::string& certificate, absl::Time now) {
  const auto validity = ValidityOf(certificate);
  return validity.ok() && validity->until - now > (validity->until - validity->from) / 3;
}

// A damaged authority is reported and not replaced: that would cut off all nodes for a while, which is for an
// operator to decide.
absl::Status CheckAuthority(const KeyPair& authority, const char* which) {
  if (authority.empty()) return absl::OkStatus();
  const absl::Status status = CheckKeyPair(authority);
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("the ", which, " of the coordinator: ", status.message(),
                   "; to have a new one made, which nodes trust after a minute, delete its Secret"));
}

bool NextMaySign(const CoordinatorPki& pki, absl::Time now) {
  if (!absl::StrContains(pki.nodes_trust, pki.next_authority.certificate)) return false;
  const auto validity = ValidityOf(pki.next_authority.certificate);
  return validity.ok() && now >= validity->from + kClockSkew + kTrustSpreads;
}

absl::Status RenewAuthority(CoordinatorPki& pki, const PkiOptions& options, absl::Time now) {
  const Validity life = LifeFrom(now, options.authority_life);
  if (!Outlives(pki.authority.certificate, now)) {  // nobody trusts anything: no reason to wait
    pki.next_authority = {};
    ASSIGN_OR_RETURN(pki.authority, MakeAuthority(kAuthorityName, life));
  } else if (!pki.next_authority.empty() && NextMaySign(pki, now)) {
    pki.former_authority = pki.authority.certificate;
    pki.authority = std::exchange(pki.next_authority, {});
  } else if (pki.next_authority.empty() && !IsFresh(pki.authority.certificate, now)) {
    ASSIGN_OR_RETURN(pki.next_authority, MakeAuthority(kAuthorityName, life));
  }
  if (!Outlives(pki.former_authority, now)) pki.former_authority.clear();
  pki.nodes_trust =
      absl::StrCat(pki.next_authority.certificate, pki.authority.certificate, pki.former_authority);
  return absl::OkStatus();
}

absl::Status RenewServer(CoordinatorPki& pki, const PkiOptions& options, absl::Time now) {
  const bool good = CheckServerCertificate(pki.server, pki.authority.certificate, options.host).ok();
  if (good && IsFresh(pki.server.certificate, now)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Validity authority, ValidityOf(pki.authority.certificate));
  Validity life = LifeFrom(now, options.server_life);
  // A certificate is of no use outside the life of its authority.
  life.from = std::max(life.from, authority.from);
  life.until = std::min(life.until, authority.until);
  ASSIGN_OR_RETURN(pki.server, IssueServerCertificate(pki.authority, options.host, life));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CoordinatorPki> RenewCoordinatorPki(CoordinatorPki pki, const PkiOptions& options,
                                                   absl::Time now) {
  RETURN_IF_ERROR(CheckAuthority(pki.authority, "CA"));
  RETURN_IF_ERROR(CheckAuthority(pki.next_authority, "next CA"));
  RETURN_IF_ERROR(RenewAuthority(pki, options, now));
  RETURN_IF_ERROR(RenewServer(pki, options, now));
  return pki;
}

}  // namespace lunkeeper
