#include "base/revoked_certificates.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "base/certificate.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

std::string MakeCertificate() {
  const absl::Time now = absl::Now();
  return MakeAuthority("test", {now - absl::Hours(1), now + absl::Hours(1)})->certificate;
}

struct RevocationFixture {
  // As `openssl x509` prints it: serial=… or sha256 Fingerprint=AA:BB…
  std::string Show(const std::string& pem, const std::string& what) const {
    std::ofstream(folder / "c.pem") << pem;
    const std::string command =
        "openssl x509 -noout " + what + " -in " + folder / "c.pem" + " | cut -d= -f2 > " + folder / "shown";
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream file(folder / "shown");
    std::string line;
    std::getline(file, line);
    return line;
  }
  void Write(const std::string& text) const { std::ofstream(list) << text; }

  testing::TempDir folder;
  const std::string list = folder / "revoked";
};

}  // namespace

TEST_CASE("a certificate is refused by its serial or its fingerprint, as openssl prints them") {
  const RevocationFixture f;
  const std::string one = MakeCertificate(), two = MakeCertificate(), three = MakeCertificate();
  f.Write("# stolen\n" + f.Show(one, "-serial") + "  # by whom?\n\n" + f.Show(two, "-fingerprint -sha256") +
          "\n");
  const auto revoked = RevokedCertificates::Open(f.list);
  REQUIRE(revoked.ok());
  CHECK(absl::IsPermissionDenied((*revoked)->CheckCertificate(one)));
  CHECK(absl::IsPermissionDenied((*revoked)->CheckCertificate(two)));
  CHECK((*revoked)->CheckCertificate(three).ok());
  CHECK(absl::IsPermissionDenied((*revoked)->CheckCertificate("no certificate")));
}

TEST_CASE("the list is read again when it has changed, and one with a mistake changes nothing") {
  const RevocationFixture f;
  const std::string one = MakeCertificate(), two = MakeCertificate();
  f.Write("");
  const auto revoked = RevokedCertificates::Open(f.list);
  REQUIRE(revoked.ok());
  CHECK((*revoked)->CheckCertificate(one).ok());
  f.Write(f.Show(one, "-serial") + "\n");
  REQUIRE(Eventually([&] { return !(*revoked)->CheckCertificate(one).ok(); }));
  f.Write("not hexadecimal\n" + f.Show(two, "-serial") + "\n");
  const absl::Time wrong = absl::Now();
  REQUIRE(Eventually([&] { return absl::Now() - wrong > absl::Milliseconds(1200); }));
  CHECK_FALSE((*revoked)->CheckCertificate(one).ok());
  CHECK((*revoked)->CheckCertificate(two).ok());
  f.Write(f.Show(two, "-serial") + "\n");
  CHECK(Eventually([&] { return !(*revoked)->CheckCertificate(two).ok(); }));
  CHECK((*revoked)->CheckCertificate(one).ok());
}

TEST_CASE("a list that is not there, or has a mistake, is refused at the start") {
  const RevocationFixture f;
  CHECK(absl::IsFailedPrecondition(RevokedCertificates::Open(f.list).status()));
  f.Write("1234\nserial=5\n");
  const absl::Status wrong = RevokedCertificates::Open(f.list).status();
  CHECK(absl::IsFailedPrecondition(wrong));
  CHECK_THAT(std::string(wrong.message()), Catch::Contains("line 2"));
}

}  // namespace lunkeeper
