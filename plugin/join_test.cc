// A storage host that joins, against an API server that has its Secret.
#include "plugin/join.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/certificate.h"
#include "base/testing/test_host.h"
#include "fencing/kube/testing/api_fixture.h"

namespace lunkeeper {
namespace {

using kube::Exchange;
using kube::Json;

constexpr char kPath[] = "/api/v1/namespaces/lunkeeper/secrets/lunkeeper-array-rack1-tls";

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class JoinFixture {
 public:
  JoinFixture() { Offer(NewPair()); }

  KeyPair NewPair() {
    const Validity life{absl::Now() - absl::Minutes(5), absl::Now() + absl::Hours(24)};
    const auto pair = IssueCertificate(authority_, CertificateUse::kServer, "rack1", life);
    REQUIRE(pair.ok());
    return *pair;
  }
  void Offer(const KeyPair& pair) {
    absl::MutexLock lock(&mu_);
    offered_ = pair;
  }
  // As kubectl prints the invitation's Secret.
  Json Document() const {
    const std::string ca = Content(api.Config().ca_file);
    return {{"kind", "Secret"},
            {"metadata", {{"annotations", {{"lunkeeper.io/certificate", "lunkeeper-array-rack1-tls"}}}}},
            {"data",
             {{"ca.crt", absl::Base64Escape(ca)},
              {"namespace", absl::Base64Escape("lunkeeper")},
              {"token", absl::Base64Escape("invited")}}}};
  }
  absl::Status Join() {
    const auto invitation = ParseInvitation(kube::ToText(Document()), api.Config().server);
    REQUIRE(invitation.ok());
    const absl::Status kept = KeepInvitation(folder.path(), *invitation);
    return kept.ok() ? Fetch() : kept;
  }
  absl::Status Fetch() const { return FetchCertificate(folder.path(), absl::Now() + absl::Seconds(20)); }
  KeyPair InUse() const { return {Content(folder / "tls/tls.crt"), Content(folder / "tls/tls.key")}; }
  std::string token() {
    absl::MutexLock lock(&mu_);
    return token_;
  }

  const testing::TempDir folder;

 private:
  void Answer(Exchange& exchange) {
    absl::MutexLock lock(&mu_);
    token_ = exchange.token;
    if (exchange.method != "GET" || exchange.path != kPath)
      return exchange.Refuse(403, "Forbidden", "that is another's");
    exchange.Reply({{"kind", "Secret"},
                    {"data",
                     {{"tls.crt", absl::Base64Escape(offered_.certificate)},
                      {"tls.key", absl::Base64Escape(offered_.key)},
                      {"ca.crt", absl::Base64Escape(authority_.certificate)}}}});
  }

  const KeyPair authority_ =
      *MakeAuthority("a", {absl::Now() - absl::Minutes(5), absl::Now() + absl::Hours(48)});
  absl::Mutex mu_;
  KeyPair offered_ ABSL_GUARDED_BY(mu_);
  std::string token_ ABSL_GUARDED_BY(mu_);

 public:
  kube::ApiFixture api{[this](Exchange& exchange) { Answer(exchange); }};
};

}  // namespace

TEST_CASE("a storage host gets the certificate that it is invited to, and nobody else can read it") {
  JoinFixture host;
  REQUIRE(host.Join().ok());
  CHECK(host.token() == "invited");
  CHECK(CheckKeyPair(host.InUse()).ok());
  CHECK_FALSE(Content(host.folder / "tls/ca.crt").empty());
  for (const char* path : {"tls/tls.key", "api-token"}) {
    struct stat told = {};
    REQUIRE(::stat((host.folder / path).c_str(), &told) == 0);
    CHECK((told.st_mode & 077) == 0);
  }
}

TEST_CASE("a certificate that is still the cluster's is left alone, and a renewed one replaces it whole") {
  JoinFixture host;
  REQUIRE(host.Join().ok());
  const auto before = std::filesystem::read_symlink(host.folder / "tls");
  REQUIRE(host.Fetch().ok());
  CHECK(std::filesystem::read_symlink(host.folder / "tls") == before);
  const KeyPair renewed = host.NewPair();
  host.Offer(renewed);
  REQUIRE(host.Fetch().ok());
  CHECK(host.InUse() == renewed);
  CHECK_FALSE(std::filesystem::exists(host.folder.path() / before));
}

TEST_CASE("what is no pair of certificate and key does not replace one") {
  JoinFixture host;
  REQUIRE(host.Join().ok());
  const KeyPair good = host.InUse();
  for (const KeyPair& bad : {KeyPair{}, KeyPair{good.certificate, host.NewPair().key}}) {
    host.Offer(bad);
    CHECK(absl::IsFailedPrecondition(host.Fetch()));
    CHECK(host.InUse() == good);
  }
}

TEST_CASE("a run that was killed between the link and its place does not stop the next one") {
  JoinFixture host;
  REQUIRE(host.Join().ok());
  std::filesystem::create_symlink("nowhere", host.folder / "tls.new");
  std::filesystem::create_directory(host.folder / "tls-left-over");
  const KeyPair renewed = host.NewPair();
  host.Offer(renewed);
  REQUIRE(host.Fetch().ok());
  CHECK(host.InUse() == renewed);
  CHECK_FALSE(std::filesystem::exists(host.folder / "tls-left-over"));
}

TEST_CASE("without an invitation it is said how to get one") {
  const testing::TempDir folder;
  const absl::Status status = FetchCertificate(folder.path(), absl::Now() + absl::Seconds(5));
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "--server"));
}

TEST_CASE("what is no invitation is refused before anything is kept") {
  JoinFixture host;
  const std::string server = host.api.Config().server;
  CHECK(absl::IsInvalidArgument(ParseInvitation("", server).status()));
  CHECK(absl::IsInvalidArgument(ParseInvitation("{}", server).status()));
  CHECK(absl::IsInvalidArgument(ParseInvitation(kube::ToText(host.Document()), "10.0.0.1").status()));
  for (const char* key : {"token", "ca.crt", "namespace"}) {
    Json document = host.Document();
    document["data"].erase(key);
    CHECK(absl::IsInvalidArgument(ParseInvitation(kube::ToText(document), server).status()));
  }
  Json document = host.Document();
  document["metadata"].erase("annotations");
  CHECK(absl::IsInvalidArgument(ParseInvitation(kube::ToText(document), server).status()));
}

}  // namespace lunkeeper
