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
