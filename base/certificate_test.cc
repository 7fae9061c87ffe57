// What is made here is believed by OpenSSL's own program, as it is by gRPC.
#include "base/certificate.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/time/clock.h"
#include "base/subprocess.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

constexpr char kHost[] = "lunkeeper-coordinator.lunkeeper.svc";

Validity Days(int days) { return {absl::Now() - absl::Minutes(5), absl::Now() + absl::Hours(24 * days)}; }

// Whether the other side, which trusts `trusted`, would take the certificate for `host`.
bool OpenSslAccepts(const std::string& certificate, const std::string& trusted, const std::string& host,
                    const std::string& purpose = "sslserver") {
  const testing::TempDir folder;
  std::ofstream(folder / "trusted.pem") << trusted;
  std::ofstream(folder / "server.pem") << certificate;
  const auto done = RunCommand({"openssl", "verify", "-x509_strict", "-purpose", purpose, "-verify_hostname",
                                host, "-CAfile", folder / "trusted.pem", folder / "server.pem"},
                               absl::Now() + absl::Seconds(20));
  return done.ok() && done->exit_code == 0;
}

}  // namespace

TEST_CASE("a server's certificate is believed for its host, by who trusts its authority") {
  const auto authority = MakeAuthority("a", Days(10)), other = MakeAuthority("a", Days(10));
  REQUIRE((authority.ok() && other.ok()));
  const auto server = IssueCertificate(*authority, CertificateUse::kServer, kHost, Days(5));
  REQUIRE(server.ok());
  CHECK(OpenSslAccepts(server->certificate, authority->certificate, kHost));
  CHECK_FALSE(OpenSslAccepts(server->certificate, authority->certificate, "elsewhere.svc"));
  CHECK_FALSE(OpenSslAccepts(server->certificate, other->certificate, kHost));
  // Two authorities of one name in one file, in either order: while one replaces the other.
  CHECK(OpenSslAccepts(server->certificate, other->certificate + authority->certificate, kHost));
  CHECK(OpenSslAccepts(server->certificate, authority->certificate + other->certificate, kHost));
}

TEST_CASE("a host too long for a common name gets its certificate all the same") {
  const auto authority = MakeAuthority("a", Days(10));
  const std::string host = std::string(50, 'x') + "-coordinator." + std::string(60, 'n') + ".svc";
  const auto server = IssueCertificate(*authority, CertificateUse::kServer, host, Days(5));
  REQUIRE(server.ok());
  CHECK(OpenSslAccepts(server->certificate, authority->certificate, host));
  CHECK(CheckIssued(*server, authority->certificate, CertificateUse::kServer, host).ok());
}

TEST_CASE("a pair is checked for its key, its authority and its host") {
  const auto authority = MakeAuthority("a", Days(10)), other = MakeAuthority("a", Days(10));
  const auto server = IssueCertificate(*authority, CertificateUse::kServer, kHost, Days(5));
  REQUIRE(server.ok());
  CHECK(CheckIssued(*server, authority->certificate, CertificateUse::kServer, kHost).ok());
  CHECK(CheckIssued(*server, other->certificate, CertificateUse::kServer, kHost).message() ==
        "another authority has signed the certificate");
  CHECK_FALSE(CheckIssued(*server, authority->certificate, CertificateUse::kServer, "elsewhere.svc").ok());
  CHECK_FALSE(CheckKeyPair({server->certificate, authority->key}).ok());
  CHECK_FALSE(CheckKeyPair({"", ""}).ok());
  CHECK_FALSE(CheckIssued({"x", "y"}, authority->certificate, CertificateUse::kServer, kHost).ok());
}

TEST_CASE("a certificate is of no use on the other side of TLS") {
  const auto authority = MakeAuthority("a", Days(10));
  for (const auto use : {CertificateUse::kServer, CertificateUse::kClient}) {
    const bool server = use == CertificateUse::kServer;
    const auto pair = IssueCertificate(*authority, use, kHost, Days(5));
    REQUIRE(pair.ok());
    CHECK(OpenSslAccepts(pair->certificate, authority->certificate, kHost, "sslserver") == server);
    CHECK(OpenSslAccepts(pair->certificate, authority->certificate, kHost, "sslclient") != server);
    for (const auto asked : {CertificateUse::kServer, CertificateUse::kClient})
      CHECK(CheckIssued(*pair, authority->certificate, asked, kHost).ok() == (asked == use));
  }
}

TEST_CASE("a certificate is good from when to when it was made for") {
  const Validity asked{absl::FromUnixSeconds(1'800'000'000), absl::FromUnixSeconds(3'000'000'000)};
  const auto made = MakeAuthority("a", asked);
  const auto told = ValidityOf(made.value_or(KeyPair{}).certificate);
  REQUIRE(told.ok());
  CHECK((told->from == asked.from && told->until == asked.until));
  CHECK(absl::IsFailedPrecondition(ValidityOf("-----BEGIN CERTIFICATE-----\nAAAA\n").status()));
}

}  // namespace lunkeeper
