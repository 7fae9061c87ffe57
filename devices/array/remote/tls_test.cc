#include "base/tls.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/time/clock.h"
#include "devices/array/remote/testing/test_agent.h"

namespace lunkeeper {

TEST_CASE("TLS files that are not right are refused at once, by name") {
  const testing::TestCa ca;
  const TlsFiles good = ca.Issue("controller", testing::kControllerNames);
  const TlsFiles other = ca.Issue("agent", testing::kAgentNames);
  const auto refused = [&](TlsFiles files, const std::string& named) {
    const absl::Status status = MutualTlsClient(files).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains(named));
  };
  refused({good.certificate, good.key, "/nowhere/ca.crt"}, "/nowhere/ca.crt");
  refused({good.key, good.key, good.ca}, good.key);
  refused({good.certificate, good.certificate, good.ca}, "a private key");
  refused({good.certificate, other.key, good.ca}, "it is not the key of");
  CHECK(MutualTlsServer(good).ok());
}

TEST_CASE("a certificate says until when it is good") {
  const testing::TestCa ca;
  const auto end = CertificateEnds(ca.Issue("agent", testing::kAgentNames).certificate);
  REQUIRE(end.ok());
  CHECK(*end > absl::Now() + absl::Hours(1));
  CHECK(*end < absl::Now() + absl::Hours(24 * 366 * 100));
  CHECK(absl::IsFailedPrecondition(CertificateEnds("/nowhere.crt").status()));
}

}  // namespace lunkeeper
