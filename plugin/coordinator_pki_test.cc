#include "plugin/coordinator_pki.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/match.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);
const PkiOptions kOptions{
    .host = "coordinator.lunkeeper.svc", .server_life = 90 * kDay, .authority_life = 3650 * kDay};

CoordinatorPki Renewed(const CoordinatorPki& pki, absl::Time now, const PkiOptions& options = kOptions) {
  const auto renewed = RenewCoordinatorPki(pki, options, now);
  REQUIRE(renewed.ok());
  return *renewed;
}

bool SameAuthorities(const CoordinatorPki& a, const CoordinatorPki& b) {
  return a.authority == b.authority && a.next_authority == b.next_authority && a.nodes_trust == b.nodes_trust;
}

// Whether somebody with this to trust takes what the coordinator shows at that time.
bool IsTakenBy(const std::string& trust, const CoordinatorPki& pki, absl::Time now) {
  for (size_t at = trust.find("-----BEGIN"); at != std::string::npos; at = trust.find("-----BEGIN", at + 1)) {
    const std::string authority = trust.substr(at);  // only its first counts
    if (!CheckServerCertificate(pki.server, authority, kOptions.host).ok()) continue;
    const auto server = ValidityOf(pki.server.certificate), issuer = ValidityOf(authority);
    return now >= server->from && now < server->until && now >= issuer->from && now < issuer->until;
  }
  return false;
}

}  // namespace

TEST_CASE("certificates are made once, and left as they are while they are good") {
  const CoordinatorPki made = Renewed({}, kStart);
  CHECK(IsTakenBy(made.nodes_trust, made, kStart));
  CHECK(made.nodes_trust == made.authority.certificate);
  const CoordinatorPki later = Renewed(made, kStart + 59 * kDay);
  CHECK((SameAuthorities(made, later) && later.server == made.server));
}

TEST_CASE("a certificate is renewed in the last third of its life, by the same authority") {
  const CoordinatorPki made = Renewed({}, kStart);
  const CoordinatorPki later = Renewed(made, kStart + 61 * kDay);
  CHECK(SameAuthorities(made, later));
  CHECK_FALSE(later.server == made.server);
  CHECK(IsTakenBy(made.nodes_trust, later, kStart + 61 * kDay));
  CHECK(ValidityOf(later.server.certificate)->until == kStart + 151 * kDay);
}

TEST_CASE("a certificate that does not fit is replaced") {
  const CoordinatorPki made = Renewed({}, kStart);
  const CoordinatorPki strange = Renewed({}, kStart);
  PkiOptions moved = kOptions;
  moved.host = "elsewhere.svc";
  CHECK(CheckServerCertificate(Renewed(made, kStart, moved).server, made.authority.certificate, moved.host)
            .ok());
  for (const KeyPair& bad :
       {KeyPair{}, KeyPair{"x", "y"}, strange.server, KeyPair{made.server.certificate, strange.server.key}}) {
    CoordinatorPki pki = made;
    pki.server = bad;
    const CoordinatorPki renewed = Renewed(pki, kStart);
    CHECK(SameAuthorities(made, renewed));
    CHECK(IsTakenBy(made.nodes_trust, renewed, kStart));
  }
}

TEST_CASE("through all renewals, what is shown is trusted by a node that read the ConfigMap a day before") {
  const PkiOptions brief{.host = kOptions.host, .server_life = 30 * kDay, .authority_life = 300 * kDay};
  CoordinatorPki pki = Renewed({}, kStart, brief);
  std::vector<std::string> authorities = {pki.authority.certificate};
  for (int day = 1; day <= 5 * 365; day += day % 30 == 0 ? 8 : 1) {  // the CronJob may fail for a week
    const std::string before = pki.nodes_trust;
    const absl::Time now = kStart + day * kDay;
    pki = Renewed(pki, now, brief);
    if (!IsTakenBy(before, pki, now)) FAIL("day " << day);
    if (pki.authority.certificate != authorities.back()) authorities.push_back(pki.authority.certificate);
  }
  CHECK(authorities.size() > 8);
  CHECK_FALSE(absl::StrContains(pki.nodes_trust, authorities.front()));  // which has ended
}

TEST_CASE("the next authority signs only after nodes have had time to trust it") {
  const CoordinatorPki made = Renewed({}, kStart);
  const absl::Time late = kStart + 2500 * kDay;
  const CoordinatorPki announced = Renewed(made, late);
  REQUIRE_FALSE(announced.next_authority.empty());
  CHECK(announced.authority == made.authority);
  CHECK(announced.nodes_trust == announced.next_authority.certificate + made.authority.certificate);
  CHECK(SameAuthorities(Renewed(announced, late + absl::Minutes(50)), announced));

  SECTION("the ConfigMap was not stored") {
    CoordinatorPki untold = announced;
    untold.nodes_trust = made.nodes_trust;
    CHECK(SameAuthorities(Renewed(untold, late + kDay), announced));
  }
  SECTION("it was") {
    const CoordinatorPki signs = Renewed(announced, late + kDay);
    CHECK(signs.authority == announced.next_authority);
    CHECK(signs.nodes_trust == signs.authority.certificate + made.authority.certificate);
    CHECK(IsTakenBy(announced.nodes_trust, signs, late + kDay));
  }
}

TEST_CASE("an authority that has ended is replaced at once") {
  const CoordinatorPki made = Renewed({}, kStart);
  const absl::Time late = kStart + 4000 * kDay;
  const CoordinatorPki again = Renewed(made, late);
  CHECK_FALSE(again.authority == made.authority);
  CHECK(again.nodes_trust == again.authority.certificate);
  CHECK(IsTakenBy(again.nodes_trust, again, late));
}

TEST_CASE("an authority that cannot be read is not replaced without being asked") {
  CoordinatorPki pki = Renewed({}, kStart);
  pki.authority.key = "scratched";
  const auto renewed = RenewCoordinatorPki(pki, kOptions, kStart);
  CHECK(absl::IsFailedPrecondition(renewed.status()));
  CHECK(absl::StrContains(renewed.status().message(), "delete its Secret"));
}

}  // namespace lunkeeper
