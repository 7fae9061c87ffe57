// `lunkeeper pki renew` against an API server that keeps Secrets and ConfigMaps.
#include "plugin/pki_store.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/kube/testing/api_fixture.h"
#include "plugin/pki_command.h"

namespace lunkeeper {
namespace {

using kube::Exchange;
using kube::FieldAt;
using kube::Json;
using kube::TextAt;

constexpr char kAuthority[] = "/api/v1/namespaces/storage/secrets/ca";
constexpr char kServer[] = "/api/v1/namespaces/storage/secrets/tls";
constexpr char kClient[] = "/api/v1/namespaces/storage/secrets/controller";
constexpr char kTrust[] = "/api/v1/namespaces/storage/configmaps/trust";
constexpr char kHost[] = "coordinator.storage.svc";
constexpr char kControllerName[] = "controller.a.cluster.lunkeeper.io";
const PkiNames kNames{.space = "storage",
                      .authority = "ca",
                      .trust = "trust",
                      .leaves = {{"tls", CertificateUse::kServer, kHost},
                                 {"controller", CertificateUse::kClient, kControllerName}}};
const PkiOptions kStoreOptions;

// Objects by their path, with the API server's rules for writing them.
class ObjectServer {
 public:
  void operator()(Exchange& exchange) {
    absl::MutexLock lock(&mu_);
    if (refusals_ > 0 && exchange.method != "GET") {
      --refusals_;
      return exchange.Refuse(409, "Conflict", "the object has been modified");
    }
    const Json body = kube::ParseJson(exchange.body).value_or(Json());
    if (exchange.method == "POST") {
      const std::string path = exchange.path + "/" + TextAt(body, {"metadata", "name"});
      if (objects_.contains(path)) return exchange.Refuse(409, "AlreadyExists", "it exists");
      return Store(exchange, path, body);
    }
    const auto found = objects_.find(exchange.path);
    if (found == objects_.end()) return exchange.Refuse(404, "NotFound", "not there");
    if (exchange.method == "GET") return exchange.Reply(found->second);
    if (TextAt(body, {"metadata", "resourceVersion"}) !=
        TextAt(found->second, {"metadata", "resourceVersion"}))
      return exchange.Refuse(409, "Conflict", "the object has been modified");
    Json merged = found->second;
    merged.merge_patch(body);
    Store(exchange, exchange.path, merged);
  }

  std::map<std::string, Json> objects() {
    absl::MutexLock lock(&mu_);
    return objects_;
  }
  void Remove(const std::string& path) {
    absl::MutexLock lock(&mu_);
    objects_.erase(path);
  }
  void RefuseWrites(int count) {
    absl::MutexLock lock(&mu_);
    refusals_ = count;
  }
  std::string Secret(const std::string& path, const char* key) {
    std::string text;
    CHECK(absl::Base64Unescape(TextAt(objects()[path], {"data", key}), &text));
    return text;
  }
  std::string Trust() { return TextAt(objects()[kTrust], {"data", "ca.crt"}); }
  KeyPair Leaf(const char* path) { return {Secret(path, "tls.crt"), Secret(path, "tls.key")}; }
  // Whether who trusts this takes what is stored for the server, and for the client.
  bool AreTakenBy(const std::string& trust) {
    return CheckIssued(Leaf(kServer), trust, CertificateUse::kServer, kHost).ok() &&
           CheckIssued(Leaf(kClient), trust, CertificateUse::kClient, kControllerName).ok();
  }

 private:
  void Store(Exchange& exchange, const std::string& path, Json object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    objects_[path] = object;
    exchange.Reply(object);
  }

  absl::Mutex mu_;
  std::map<std::string, Json> objects_ ABSL_GUARDED_BY(mu_);
  int version_ ABSL_GUARDED_BY(mu_) = 0;
  int refusals_ ABSL_GUARDED_BY(mu_) = 0;
};

struct PkiFixture {
  ObjectServer kept;
  kube::ApiFixture api{[this](Exchange& exchange) { kept(exchange); }};
  std::unique_ptr<kube::KubeClient> client = api.Client();

  absl::Status Renew(absl::Time now = absl::Now()) {
    return RenewStoredPki(*client, kNames, kStoreOptions, now, kube::Soon());
  }
  int RunCommandLine(const std::string& arguments) {
    CLI::App app;
    int exit_code = -1;
    AddPkiCommand(&app, &exit_code,
                  [this] { return absl::StatusOr<std::unique_ptr<kube::KubeClient>>(api.Client()); });
    app.parse("pki renew --namespace storage --ca-secret ca --ca-config-map trust " + arguments, false);
    return exit_code;
  }
};

}  // namespace

TEST_CASE("certificates are stored where controllers and nodes find them, and the authority's key apart") {
  PkiFixture pki;
  REQUIRE(pki.Renew().ok());
  auto objects = pki.kept.objects();
  REQUIRE(objects.size() == 4);
  CHECK(pki.kept.AreTakenBy(pki.kept.Trust()));
  const std::string key = pki.kept.Secret(kAuthority, "ca.key");
  CHECK(CheckKeyPair({pki.kept.Trust(), key}).ok());
  for (const char* leaf : {kServer, kClient}) {
    CHECK(TextAt(objects[leaf], {"type"}) == "kubernetes.io/tls");
    CHECK(pki.kept.Secret(leaf, "ca.crt") == pki.kept.Trust());
  }
  for (const char* other : {kServer, kClient, kTrust}) {
    CHECK_FALSE(absl::StrContains(kube::ToText(objects[other]), absl::Base64Escape(key)));
    CHECK_FALSE(absl::StrContains(kube::ToText(objects[other]), "ca.key"));
  }
}

TEST_CASE("what is in order is not written") {
  PkiFixture pki;
  REQUIRE(pki.Renew().ok());
  const auto before = pki.kept.objects();
  REQUIRE(pki.Renew().ok());
  CHECK(pki.kept.objects() == before);
}

TEST_CASE("what was deleted is made again, and nothing else") {
  for (const char* gone : {kServer, kClient, kTrust}) {
    PkiFixture pki;
    REQUIRE(pki.Renew().ok());
    const std::string trust = pki.kept.Trust();
    pki.kept.Remove(gone);
    REQUIRE(pki.Renew().ok());
    CHECK(pki.kept.Trust() == trust);
    CHECK(pki.kept.AreTakenBy(trust));
  }
}

TEST_CASE("an authority is replaced in the cluster without an hour in which somebody trusts too little") {
  PkiFixture pki;
  const absl::Time late = absl::Now() + absl::Hours(24 * 2500);
  REQUIRE(pki.Renew().ok());
  const std::string first = pki.kept.Trust();
  REQUIRE(pki.Renew(late).ok());
  const std::string both = pki.kept.Trust();
  CHECK((both != first && absl::EndsWith(both, first)));
  for (const char* leaf : {kServer, kClient}) CHECK(pki.kept.Secret(leaf, "ca.crt") == both);
  REQUIRE(pki.Renew(late + absl::Hours(24)).ok());
  CHECK(pki.kept.Secret(kAuthority, "next.trusted") ==
        std::to_string(absl::ToUnixSeconds(late + absl::Hours(24))));
  CHECK(pki.kept.AreTakenBy(first));
  REQUIRE(pki.Renew(late + absl::Hours(96)).ok());
  CHECK(pki.kept.Trust() == both);
  CHECK(pki.kept.AreTakenBy(both));  // by the newest, which is first
  for (const char* gone : {"next.key", "next.trusted"})
    CHECK_FALSE(FieldAt(pki.kept.objects()[kAuthority], {"data"}).contains(gone));
}

TEST_CASE("without a ConfigMap's name there is none") {
  PkiFixture pki;
  PkiNames names = kNames;
  names.trust.clear();
  REQUIRE(RenewStoredPki(*pki.client, names, kStoreOptions, absl::Now(), kube::Soon()).ok());
  CHECK(pki.kept.objects().size() == 3);
  CHECK(pki.kept.AreTakenBy(pki.kept.Secret(kServer, "ca.crt")));
}

TEST_CASE("the command tries again when another one wrote at the same moment") {
  PkiFixture pki;
  pki.kept.RefuseWrites(2);
  CHECK(pki.RunCommandLine(absl::StrCat("--server tls=", kHost, " --client controller=", kControllerName,
                                        " --days 30")) == 0);
  CHECK(pki.kept.AreTakenBy(pki.kept.Trust()));
  for (const char* leaf : {kServer, kClient}) {
    const auto life = ValidityOf(pki.kept.Leaf(leaf).certificate);
    REQUIRE(life.ok());
    CHECK(life->until - absl::Now() < absl::Hours(24 * 30 + 1));
  }
}

TEST_CASE("the command fails with its reason when it cannot store") {
  PkiFixture pki;
  pki.kept.RefuseWrites(1000);
  CHECK(pki.RunCommandLine("--server tls=coordinator.storage.svc --timeout 1") == 1);
}

TEST_CASE("a certificate without a name is a wrong command line") {
  for (const char* wrong : {"tls", "tls=", "=name"}) {
    PkiFixture pki;
    CHECK_THROWS_AS(pki.RunCommandLine(absl::StrCat("--server ", wrong)), CLI::ValidationError);
  }
}

}  // namespace lunkeeper
