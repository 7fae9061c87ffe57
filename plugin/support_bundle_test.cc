// `lunkeeper support-bundle`: what is in it, and that no secret is, wherever one was planted.

#include "plugin/support_bundle.h"

#include <catch2/catch.hpp>

#include "fencing/failover/testing/fake_api.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

using kube::Json;

constexpr char kPlanted[] = "hunter2";

Json Bundle(Shell& shell) {
  const Shell::Output told = shell.RunFully({"support-bundle"});
  CHECK(told.exit_code == 0);
  CHECK(told.errors.empty());
  CHECK_THAT(told.out, !Catch::Contains(kPlanted));
  const Json bundle = Json::parse(told.out, nullptr, false);
  REQUIRE(bundle.is_object());
  return bundle;
}

}  // namespace

TEST_CASE("a bundle has what the server and the cluster know, and what doctor finds") {
  Shell shell;
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  const VolumeId volume = Granted(*shell.array, "v");
  const std::string fence = "/apis/lunkeeper.io/v1alpha1/nodefences/" + kNode.value();
  api.Put(fence, {{"spec", {{"cause", "it smokes"}}}, {"status", {{"phase", "AwaitingNode"}}}});
  const Json bundle = Bundle(shell);
  CHECK(bundle["server"]["status"]["arrays"][0]["grants"][0]["volume"] == volume.value());
  CHECK(bundle["server"]["volumes"]["volumes"][0]["id"] == volume.value());
  CHECK(bundle["cluster"]["nodefences"][0]["spec"]["cause"] == "it smokes");
  CHECK(bundle["cluster"]["nodefences"][0]["metadata"]["name"] == kNode.value());
  CHECK_THAT(bundle["doctor"].dump(), Catch::Contains("no StorageClass names this driver"));
}

TEST_CASE("no secret is in a bundle, wherever it was planted") {
  Shell shell;
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  const std::string planted = kPlanted;
  const Json everywhere = {{"annotations", {{"kubectl.kubernetes.io/last-applied-configuration", planted}}},
                           {"labels", {{"x", planted}}}};
  Json pod;
  pod["metadata"] = everywhere;
  pod["spec"]["containers"].push_back(
      {{"env", {{{"name", "PASSWORD"}, {"value", planted}}}}, {"args", {"--password=" + planted}}});
  pod["status"]["containerStatuses"].push_back(
      {{"state", {{"terminated", {{"message", "login failed: password=" + planted}}}}}});
  api.Put("/api/v1/namespaces/lunkeeper/pods/controller", pod);
  api.Put("/apis/storage.k8s.io/v1/storageclasses/ours",
          {{"metadata", everywhere},
           {"provisioner", "csi.lunkeeper.io"},
           {"parameters", {{"array", "rack1"}, {"chapSecret", planted}}}});
  api.Put("/apis/storage.k8s.io/v1/storageclasses/other",
          {{"provisioner", "another.example"}, {"parameters", {{"restuserkey", planted}}}});
  api.Put("/api/v1/persistentvolumes/ours", {{"metadata", everywhere},
                                             {"spec",
                                              {{"csi",
                                                {{"driver", "csi.lunkeeper.io"},
                                                 {"volumeHandle", "h"},
                                                 {"volumeAttributes", {{"key", planted}}}}}}}});
  api.Put("/api/v1/persistentvolumes/other",
          {{"spec", {{"csi", {{"driver", "another.example"}, {"volumeHandle", planted}}}}}});
  api.Put("/apis/lunkeeper.io/v1alpha1/nodefences/" + kNode.value(),
          {{"spec", {{"cause", "-----BEGIN EC PRIVATE KEY----- " + planted}}},
           {"status",
            {{"timeline", {{{"text", "sent Bearer " + planted}}, {{"text", "eyJhbGciOi." + planted}}}}}}});
  api.Put("/api/v1/namespaces/lunkeeper/secrets/tls", {{"data", {{"tls.key", planted}}}});
  shell.array->FailWith(absl::UnavailableError("refused: token=" + planted));
  const Json bundle = Bundle(shell);
  // What is about the same objects and no secret is there.
  CHECK(bundle["cluster"]["storageclasses"].size() == 1);
  CHECK(bundle["cluster"]["storageclasses"][0]["parameters"]["array"] == "rack1");
  CHECK(bundle["cluster"]["persistentvolumes"][0]["spec"]["csi"]["volumeHandle"] == "h");
  CHECK(bundle["cluster"]["pods"][0]["metadata"]["name"] == "controller");
}

TEST_CASE("the CHAP secrets of grants are in no bundle") {
  Shell shell;
  const VolumeId volume = Granted(*shell.array, "v");
  const auto grants = shell.array->ListGrants({volume, kNode});
  const std::string secret = grants->front().connection.chap.secret;
  REQUIRE(secret.size() > 4);
  CHECK_THAT(shell.RunFully({"support-bundle"}).out, !Catch::Contains(secret));
}

TEST_CASE("a bundle is made when nothing answers, and says so") {
  Shell shell;
  fencing::FakeApi api;
  api.SetDown(true);
  shell.cluster = [&] { return api.Client(); };
  shell.server.reset();
  const Shell::Output told = shell.RunFully({"support-bundle", "--timeout", "1"});
  const Json bundle = Json::parse(told.out, nullptr, false);
  REQUIRE(bundle.is_object());
  CHECK_THAT(bundle["server"]["status"]["trouble"].dump(), Catch::Contains("UNAVAILABLE"));
  CHECK(bundle["cluster"]["pods"].contains("trouble"));
  CHECK_THAT(bundle["doctor"].dump(), Catch::Contains("it does not answer"));
}

}  // namespace lunkeeper
