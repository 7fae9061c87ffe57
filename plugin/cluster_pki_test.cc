#include "plugin/cluster_pki.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/match.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);
const PkiOptions kOptions{.leaf_life = 90 * kDay, .authority_life = 3650 * kDay};
constexpr size_t kCoordinator = 0, kAgent = 1, kController = 2;

// As of a cluster with an array in it: nodes trust the coordinator, agent and controllers each other.
ClusterPki Nothing() {
  ClusterPki pki;
  pki.leaves = {{CertificateUse::kServer, "coordinator.lunkeeper.svc", {}, ""},
                {CertificateUse::kServer, "array.lunkeeper.svc", {}, ""},
                {CertificateUse::kClient, "controller.a.cluster.lunkeeper.io", {}, ""}};
  return pki;
}

ClusterPki Renewed(const ClusterPki& pki, absl::Time now, const PkiOptions& options = kOptions) {
  const auto renewed = RenewClusterPki(pki, options, now);
  REQUIRE(renewed.ok());
  return *renewed;
}

bool SameAuthorities(const ClusterPki& a, const ClusterPki& b) {
  return a.authority == b.authority && a.next_authority == b.next_authority && a.trust == b.trust;
}

bool SameLeaves(const ClusterPki& a, const ClusterPki& b) {
  for (size_t i = 0; i < a.leaves.size(); ++i)
    if (!(a.leaves[i].pair == b.leaves[i].pair) || a.leaves[i].trust != b.leaves[i].trust) return false;
  return a.leaves.size() == b.leaves.size();
}

// Whether somebody with this to trust takes the leaf at that time.
bool IsTakenBy(const std::string& trust, const LeafCertificate& leaf, absl::Time now) {
  for (size_t at = trust.find("-----BEGIN"); at != std::string::npos; at = trust.find("-----BEGIN", at + 1)) {
    const std::string authority = trust.substr(at);  // only its first counts
    if (!CheckIssued(leaf.pair, authority, leaf.use, leaf.name).ok()) continue;
    const auto own = ValidityOf(leaf.pair.certificate), issuer = ValidityOf(authority);
    return now >= own->from && now < own->until && now >= issuer->from && now < issuer->until;
  }
  return false;
}

// Whether all programs accept each other, with `reads` telling what they trust and `shows` what they show.
bool AllConnect(const ClusterPki& reads, const ClusterPki& shows, absl::Time now) {
  return IsTakenBy(reads.trust, shows.leaves[kCoordinator], now) &&
         IsTakenBy(reads.leaves[kController].trust, shows.leaves[kAgent], now) &&
         IsTakenBy(reads.leaves[kAgent].trust, shows.leaves[kController], now);
}

}  // namespace

TEST_CASE("certificates are made once, and left as they are while they are good") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  CHECK(AllConnect(made, made, kStart));
  CHECK(made.trust == made.authority.certificate);
  const ClusterPki later = Renewed(made, kStart + 59 * kDay);
  CHECK((SameAuthorities(made, later) && SameLeaves(made, later)));
}

TEST_CASE("certificates are renewed in the last third of their life, by the same authority") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  const ClusterPki later = Renewed(made, kStart + 61 * kDay);
  CHECK(SameAuthorities(made, later));
  CHECK(AllConnect(made, later, kStart + 61 * kDay));
  for (size_t i = 0; i < made.leaves.size(); ++i) {
    CHECK_FALSE(later.leaves[i].pair == made.leaves[i].pair);
    CHECK(ValidityOf(later.leaves[i].pair.certificate)->until == kStart + 151 * kDay);
  }
}

TEST_CASE("a certificate that does not fit is replaced, and no other") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  const ClusterPki strange = Renewed(Nothing(), kStart);
  ClusterPki moved = made;
  moved.leaves[kAgent].name = "elsewhere.svc";
  moved = Renewed(moved, kStart);
  CHECK(IsTakenBy(made.trust, moved.leaves[kAgent], kStart));
  CHECK(moved.leaves[kController].pair == made.leaves[kController].pair);
  const KeyPair own = made.leaves[kAgent].pair, other = strange.leaves[kAgent].pair;
  for (const KeyPair& bad : {KeyPair{}, KeyPair{"x", "y"}, other, KeyPair{own.certificate, other.key},
                             made.leaves[kController].pair}) {
    ClusterPki pki = made;
    pki.leaves[kAgent].pair = bad;
    const ClusterPki renewed = Renewed(pki, kStart);
    CHECK(SameAuthorities(made, renewed));
    CHECK(AllConnect(made, renewed, kStart));
  }
}

TEST_CASE("controllers are not made those of another cluster") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  ClusterPki other = made;
  other.leaves[kController].name = "controller.b.cluster.lunkeeper.io";
  // Also when it is due.
  for (const absl::Time now : {kStart, kStart + 61 * kDay})
    CHECK(absl::IsFailedPrecondition(RenewClusterPki(other, kOptions, now).status()));
  other.leaves[kController].pair = {};  // deleted by an operator
  CHECK(AllConnect(made, Renewed(other, kStart), kStart));
}

TEST_CASE("an array that is added gets its certificate, and the others keep theirs") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  ClusterPki more = made;
  more.leaves.push_back({CertificateUse::kServer, "second.lunkeeper.svc", {}, ""});
  more = Renewed(more, kStart + kDay);
  CHECK(IsTakenBy(made.leaves[kController].trust, more.leaves.back(), kStart + kDay));
  CHECK(IsTakenBy(more.leaves.back().trust, made.leaves[kController], kStart + kDay));
  more.leaves.pop_back();
  CHECK((SameAuthorities(made, more) && SameLeaves(made, more)));
}

TEST_CASE("through all renewals, what is shown is trusted by those who read what was trusted a day before") {
  const PkiOptions brief{.leaf_life = 30 * kDay, .authority_life = 300 * kDay};
  ClusterPki pki = Renewed(Nothing(), kStart, brief);
  std::vector<std::string> authorities = {pki.authority.certificate};
  for (int day = 1; day <= 5 * 365; day += day % 30 == 0 ? 8 : 1) {  // the CronJob may fail for a week
    const ClusterPki before = pki;
    const absl::Time now = kStart + day * kDay;
    pki = Renewed(pki, now, brief);
    const bool same = SameAuthorities(before, pki) && SameLeaves(before, pki);
    if (!AllConnect(before, pki, now) || (!same && !AllConnect(pki, before, now))) FAIL("day " << day);
    if (pki.authority.certificate != authorities.back()) authorities.push_back(pki.authority.certificate);
  }
  CHECK(authorities.size() > 8);
  CHECK_FALSE(absl::StrContains(pki.trust, authorities.front()));  // which has ended
}

TEST_CASE("the next authority signs only after all have had time to trust it") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  const absl::Time late = kStart + 2500 * kDay;
  const ClusterPki announced = Renewed(made, late);
  REQUIRE_FALSE(announced.next_authority.empty());
  CHECK(announced.authority == made.authority);
  CHECK(announced.trust == announced.next_authority.certificate + made.authority.certificate);

  SECTION("what is to be trusted was stored for some only, and for the others days later") {
    ClusterPki untold = announced;
    SECTION("not for nodes") { untold.trust = made.trust; }
    SECTION("not for the agent") { untold.leaves[kAgent].trust = made.trust; }
    const absl::Time stored = late + 3 * kDay;
    const ClusterPki told = Renewed(untold, stored);
    CHECK(SameAuthorities(told, announced));
    // A second attempt of the same run, since the first one failed after it had stored that.
    const ClusterPki again = Renewed(told, stored + absl::Seconds(1));
    CHECK(SameAuthorities(again, announced));
    CHECK(SameAuthorities(Renewed(again, stored + absl::Minutes(50)), announced));
    CHECK(SameAuthorities(Renewed(again, stored + 2 * kDay), announced));
    CHECK(Renewed(again, stored + 3 * kDay).authority == announced.next_authority);
  }
  SECTION("it was stored for all") {
    const ClusterPki known = Renewed(announced, late + kDay);
    CHECK(SameAuthorities(known, announced));
    const ClusterPki signs = Renewed(known, late + 4 * kDay);
    CHECK(signs.authority == announced.next_authority);
    CHECK(signs.next_trusted == absl::InfiniteFuture());
    CHECK(signs.trust == signs.authority.certificate + made.authority.certificate);
    CHECK(AllConnect(announced, signs, late + 4 * kDay));
    CHECK(AllConnect(signs, announced, late + 4 * kDay));
  }
}

TEST_CASE(
    "a storage host that fetches what to trust once a day takes what controllers show, however often that is "
    "renewed") {
  const ClusterPki first = Renewed(Nothing(), kStart);
  const absl::Time due = kStart + 2434 * kDay;
  const ClusterPki host = Renewed(first, due - kDay);
  REQUIRE(host.next_authority.empty());
  ClusterPki pki = host;
  // The CronJob, and the Jobs of upgrades of the chart.
  for (const auto after : {absl::ZeroDuration(), absl::Minutes(5), absl::Minutes(70), absl::Hours(23)}) {
    pki = Renewed(pki, due + after);
    CHECK(IsTakenBy(host.leaves[kAgent].trust, pki.leaves[kController], due + after));
  }
}

TEST_CASE("an authority that has ended is replaced at once") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  const absl::Time late = kStart + 4000 * kDay;
  const ClusterPki again = Renewed(made, late);
  CHECK_FALSE(again.authority == made.authority);
  CHECK(again.trust == again.authority.certificate);
  CHECK(AllConnect(again, again, late));
}

TEST_CASE(
    "what a clock that was ahead has made is replaced by the next run, and a clock behind ends nothing") {
  const ClusterPki made = Renewed(Nothing(), kStart);
  const ClusterPki ahead = Renewed(made, kStart + 100 * kDay);
  REQUIRE_FALSE(AllConnect(ahead, ahead, kStart + kDay));
  const ClusterPki again = Renewed(ahead, kStart + kDay);
  CHECK(SameAuthorities(made, again));
  CHECK(AllConnect(again, again, kStart + kDay));
  const ClusterPki local_time = Renewed(Nothing(), kStart + absl::Hours(2));
  CHECK(AllConnect(local_time, local_time, kStart));
  const ClusterPki renewed = Renewed(made, kStart + 70 * kDay);
  const ClusterPki a_month_behind = Renewed(renewed, kStart + 40 * kDay);
  CHECK(AllConnect(a_month_behind, a_month_behind, kStart + 70 * kDay));
  CHECK(ValidityOf(a_month_behind.leaves[kAgent].pair.certificate)->until == kStart + 160 * kDay);
  const auto behind = RenewClusterPki(made, kOptions, kStart - 2 * kDay);
  CHECK(absl::IsFailedPrecondition(behind.status()));
  CHECK(absl::StrContains(behind.status().message(), "NTP"));
}

TEST_CASE("an authority that cannot be read is not replaced without being asked") {
  ClusterPki pki = Renewed(Nothing(), kStart);
  pki.authority.key = "scratched";
  const auto renewed = RenewClusterPki(pki, kOptions, kStart);
  CHECK(absl::IsFailedPrecondition(renewed.status()));
  CHECK(absl::StrContains(renewed.status().message(), "delete its Secret"));
}

}  // namespace lunkeeper
