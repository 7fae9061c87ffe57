// How the cluster's authority is replaced without a moment in which one side of a connection refuses the
// other. Each run of `lunkeeper pki renew` takes at most one step:
//
//   in force      ── in the last third of its life ──>      a next one is made, and given to all to trust
//   both given    ── all have it, by what is stored ──>     the time of that is noted
//   both trusted  ── for kTrustSpreads since then ──>       the next one signs; both are trusted
//   handed over   ── when the former one has expired ──>    the one in force is trusted
//
// In one step, a node that has not yet read the new ConfigMap would refuse the coordinator, and its
// heartbeats would stop. The time is noted by a later run than the one that stores what is trusted, since
// that one may be killed in between. An authority that has expired is replaced at once, as nobody accepts it
// any more.
//
// Pure: the caller stores the result (pki_store.cc). A run that was killed in between finds the stored state,
// and takes the step again.
#include "plugin/cluster_pki.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr char kAuthorityName[] = "Lunkeeper CA";
// Clocks differ by less, also that of a machine that keeps local time and has not asked a time server yet.
constexpr absl::Duration kClockSkew = absl::Hours(12);
// Kubelet brings a changed ConfigMap or Secret to all pods within about two minutes. Storage hosts outside
// the cluster fetch it each hour (lunkeeper-join@.timer), older ones once a day, and one attempt may fail.
constexpr absl::Duration kTrustSpreads = absl::Hours(50);

Validity LifeFrom(absl::Time now, absl::Duration life) { return {now - kClockSkew, now + life}; }

bool Outlives(const std::string& certificate, absl::Time now) {
  const auto validity = ValidityOf(certificate);
  return validity.ok() && now < validity->until;
}

// It has begun, and more than a third of its life is left. One that a clock far ahead has made would be
// refused by everybody until its time comes.
bool IsFresh(const std::string& certificate, absl::Time now) {
  const auto validity = ValidityOf(certificate);
  return validity.ok() && validity->from <= now &&
         validity->until - now > (validity->until - validity->from) / 3;
}

// A damaged authority is reported and not replaced: that would cut off all nodes for a while, which is for an
// operator to decide.
absl::Status CheckAuthority(const KeyPair& authority, const char* which) {
  if (authority.empty()) return absl::OkStatus();
  const absl::Status status = CheckKeyPair(authority);
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("the cluster's ", which, ": ", status.message(),
                   "; to have a new one made, delete its Secret: pods trust it after a minute, and a storage "
                   "host outside the cluster once `systemctl start lunkeeper-join@ARRAY` was run there"));
}

// By a clock that is behind, good certificates would be replaced by some that have ended.
absl::Status CheckClock(const std::string& authority, absl::Time now) {
  const auto validity = ValidityOf(authority);
  if (!validity.ok() || validity->from <= now) return absl::OkStatus();
  const auto utc = [](absl::Time time) {
    return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
  };
  return absl::FailedPreconditionError(absl::StrCat("the cluster's CA is good from ", utc(validity->from),
                                                    " on, and it is ", utc(now),
                                                    " here; nothing was changed. Set the clocks by NTP; if "
                                                    "the CA was made by a clock that was ahead, delete "
                                                    "its Secret"));
}

// By a client's name an array knows whose volumes it may use. Under another one controllers would find none
// of the cluster's: nothing would be failed over, and what they release or delete would only look done.
absl::Status CheckClient(const LeafCertificate& leaf) {
  if (leaf.use != CertificateUse::kClient) return absl::OkStatus();
  const auto same = IsForName(leaf.pair.certificate, leaf.name);
  if (!same.ok() || *same) return absl::OkStatus();  // a damaged one is replaced
  return absl::FailedPreconditionError(
      absl::StrCat("the controllers' certificate is not for ", leaf.name,
                   ": the name of a cluster (`cluster` in the chart's values) can never change, and nothing "
                   "was changed. Set it back; only where the cluster has no volumes yet, or `lunkeeper "
                   "reassign` gave them to the new name, delete that Secret instead"));
}

bool AllTrust(const ClusterPki& pki, const std::string& authority) {
  const auto has = [&](const std::string& trust) {
    return trust.empty() || absl::StrContains(trust, authority);
  };
  return has(pki.trust) && std::all_of(pki.leaves.begin(), pki.leaves.end(),
                                       [&](const LeafCertificate& leaf) { return has(leaf.trust); });
}

// There is a next authority, and the one in force still signs.
void StepTowardsNext(ClusterPki& pki, absl::Time now) {
  if (!AllTrust(pki, pki.next_authority.certificate)) {
    pki.next_trusted = absl::InfiniteFuture();
  } else if (pki.next_trusted == absl::InfiniteFuture()) {
    pki.next_trusted = now;
  } else if (now >= pki.next_trusted + kTrustSpreads) {
    pki.former_authority = pki.authority.certificate;
    pki.authority = std::exchange(pki.next_authority, {});
    pki.next_trusted = absl::InfiniteFuture();
  }
}

absl::Status RenewAuthority(ClusterPki& pki, const PkiOptions& options, absl::Time now) {
  const Validity life = LifeFrom(now, options.authority_life);
  if (!Outlives(pki.authority.certificate, now)) {  // nobody trusts anything: no reason to wait
    pki.next_authority = {};
    ASSIGN_OR_RETURN(pki.authority, MakeAuthority(kAuthorityName, life));
  } else if (!pki.next_authority.empty()) {
    StepTowardsNext(pki, now);
  } else if (!IsFresh(pki.authority.certificate, now)) {
    ASSIGN_OR_RETURN(pki.next_authority, MakeAuthority(kAuthorityName, life));
  }
  if (!Outlives(pki.former_authority, now)) pki.former_authority.clear();
  pki.trust = absl::StrCat(pki.next_authority.certificate, pki.authority.certificate, pki.former_authority);
  return absl::OkStatus();
}

absl::Status RenewLeaf(LeafCertificate& leaf, const ClusterPki& pki, const PkiOptions& options,
                       absl::Time now) {
  leaf.trust = pki.trust;
  const bool good = CheckIssued(leaf.pair, pki.authority.certificate, leaf.use, leaf.name).ok();
  if (good && IsFresh(leaf.pair.certificate, now)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Validity authority, ValidityOf(pki.authority.certificate));
  Validity life = LifeFrom(now, options.leaf_life);
  // One that has not begun: that clock was ahead or this one is behind. The new one is good by both.
  const auto before = ValidityOf(leaf.pair.certificate);
  if (good && before.ok() && before->from > now) life.until = std::max(life.until, before->until);
  // A certificate is of no use outside the life of its authority.
  life.from = std::max(life.from, authority.from);
  life.until = std::min(life.until, authority.until);
  ASSIGN_OR_RETURN(leaf.pair, IssueCertificate(pki.authority, leaf.use, leaf.name, life));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterPki> RenewClusterPki(ClusterPki pki, const PkiOptions& options, absl::Time now) {
  RETURN_IF_ERROR(CheckAuthority(pki.authority, "CA"));
  RETURN_IF_ERROR(CheckAuthority(pki.next_authority, "next CA"));
  RETURN_IF_ERROR(CheckClock(pki.authority.certificate, now));
  for (const LeafCertificate& leaf : pki.leaves) RETURN_IF_ERROR(CheckClient(leaf));
  RETURN_IF_ERROR(RenewAuthority(pki, options, now));
  for (LeafCertificate& leaf : pki.leaves) RETURN_IF_ERROR(RenewLeaf(leaf, pki, options, now));
  return pki;
}

}  // namespace lunkeeper
