#include "fencing/failover/pod_use_check.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using kube::Json;

// An API server with a volume that is bound to db/data, and a cache that knows what the test says.
struct UseRig {
  UseRig() {
    VolumeSpec spec;
    spec.name = "pvc-1";
    spec.size_bytes = 64 << 20;
    volume = array.CreateVolume(spec)->id;
    PutVolume("pvc-1", volume, "data");
  }

  void PutVolume(const std::string& name, const VolumeId& id, const std::string& claim,
                 const std::string& phase = "Bound") {
    api.Put("/api/v1/persistentvolumes/" + name,
            {{"spec",
              {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", id.value()}}},
               {"claimRef", {{"namespace", "db"}, {"name", claim}}}}},
             {"status", {{"phase", phase}}}});
  }
  void PutPod(const std::string& node, const Json& source, const std::string& space = "db",
              const std::string& phase = "Pending") {
    Json volume_of_pod = source;
    volume_of_pod["name"] = "data";
    api.Put(absl::StrCat("/api/v1/namespaces/", space, "/pods/p"),
            {{"spec", {{"nodeName", node}, {"volumes", Json::array({volume_of_pod})}}},
             {"status", {{"phase", phase}}}});
  }
  absl::Status Check(const std::string& machine = "n1") { return check.CheckUse(machine, volume); }
  bool IsRefused() {
    const absl::Time begin = absl::Now();
    const absl::Status status = Check();
    if (status.ok()) return false;
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()),
               Catch::Contains(volume.value()) && Catch::Contains("node n1") && Catch::Contains("no pod"));
    CHECK(absl::Now() - begin >= absl::Seconds(1));
    return true;
  }

  std::atomic<int> requests = 0, questions = 0;
  std::atomic<bool> catches_up = false;  // after its first answer
  std::function<void(kube::Exchange&)> on_request = [](kube::Exchange&) {};
  FakeApi api{[](const std::string&) {},
              [this](kube::Exchange& exchange) {
                ++requests;
                on_request(exchange);
                return false;
              }};
  std::unique_ptr<kube::KubeClient> client = api.Client();
  FakeArray array;
  std::unique_ptr<lunkeeper::Arrays> arrays =
      MakeOneArray("fake", std::shared_ptr<Array>(std::shared_ptr<void>(), &array));
  VolumeId volume;
  KnownUse known{PodUse::kNone};
  PodUseCheck check{[this](const std::string&, const VolumeId&) {
                      return questions++ > 0 && catches_up ? KnownUse{PodUse::kSome} : known;
                    },
                    *arrays, *client};
};

const Json kData = {{"persistentVolumeClaim", {{"claimName", "data"}}}};

}  // namespace

TEST_CASE("the API server has the last word: a pod on the node with a claim of the volume") {
  UseRig rig;
  std::string selected;
  rig.on_request = [&](kube::Exchange& exchange) {
    if (exchange.query.contains("fieldSelector"))
      selected = absl::StrCat(exchange.path, " ", exchange.query["fieldSelector"]);
  };
  rig.PutPod("n1", kData);
  CHECK(rig.Check().ok());
  CHECK(selected == "/api/v1/namespaces/db/pods spec.nodeName=n1");
  rig.PutPod("n2", kData);
  CHECK(rig.IsRefused());
  CHECK(rig.Check("n2").ok());
  rig.PutPod("n1", kData, "db", "Succeeded");
  CHECK(rig.IsRefused());
  rig.PutPod("n1", kData);
  rig.api.Merge("/api/v1/namespaces/db/pods/p",
                {{"metadata", {{"deletionTimestamp", "2026-11-21T00:00:00Z"}}}});
  CHECK(rig.Check().ok());
}

TEST_CASE("a mirror pod, which a node makes itself, gives nothing") {
  UseRig rig;
  rig.PutVolume("pvc-1", rig.volume, "p-data");
  rig.PutPod("n1", {{"ephemeral", Json::object()}});
  CHECK(rig.Check().ok());  // the claim of an ephemeral volume is called after its pod
  const Json owner = {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n1"}, {"controller", true}};
  Json made = Json::object();
  SECTION("by its owner") { made["ownerReferences"] = Json::array({owner}); }
  SECTION("by its annotation") { made["annotations"]["kubernetes.io/config.mirror"] = "hash"; }
  rig.api.Merge("/api/v1/namespaces/db/pods/p", {{"metadata", made}});
  CHECK(rig.IsRefused());
}

TEST_CASE("a claim of the same name elsewhere, or one that the volume is not bound to, gives nothing") {
  UseRig rig;
  rig.PutPod("n1", kData, "other");
  CHECK(rig.IsRefused());
  rig.PutPod("n1", {{"persistentVolumeClaim", {{"claimName", "mine"}}}});
  CHECK(rig.IsRefused());
  rig.PutPod("n1", kData);
  CHECK(rig.Check().ok());
  rig.PutVolume("pvc-1", rig.volume, "data", "Released");
  CHECK(rig.IsRefused());
  // Of that name, but another volume, as one of another cluster on the same array is.
  rig.PutVolume("pvc-1", VolumeId("fake-v00000000000000ff"), "data");
  CHECK(rig.IsRefused());
}

TEST_CASE("a claim that was made for its pod alone counts, and a PersistentVolume of any name") {
  UseRig rig;
  rig.PutVolume("pvc-1", rig.volume, "p-data");
  rig.PutPod("n1", {{"ephemeral", {{"volumeClaimTemplate", Json::object()}}}});
  CHECK(rig.Check().ok());
  // Made by hand: the cache alone knows what it is called.
  rig.api.Remove("/api/v1/persistentvolumes/pvc-1");
  rig.PutVolume("by-hand", rig.volume, "p-data");
  CHECK(rig.IsRefused());
  rig.known.names = {"by-hand"};
  CHECK(rig.Check().ok());
}

TEST_CASE("nobody is asked for what the cache knows, or cannot know, or has learned meanwhile") {
  UseRig rig;
  rig.known = {GENERATE(PodUse::kSome, PodUse::kUnknown)};
  CHECK(rig.Check().ok());
  rig.known = {PodUse::kNone};
  rig.questions = 0;
  rig.catches_up = true;
  CHECK(rig.Check().ok());
  CHECK(rig.requests == 0);
}

TEST_CASE("where nobody can tell, a node is refused nothing, and the log says so") {
  UseRig rig;
  const testing::TempDir folder;
  const testing::CapturedLog log(folder.path() + "/log");
  rig.api.SetDown(true);
  CHECK(rig.Check().ok());
  CHECK_THAT(log.Text(), Catch::Contains("nobody could tell") && Catch::Contains(rig.volume.value()));
  rig.api.SetDown(false);
  rig.array.FailWith(absl::UnavailableError("the array hangs"));
  CHECK(rig.Check().ok());
  rig.array.FailWith(absl::OkStatus());
  CHECK(rig.check.CheckUse("n1", VolumeId("fake-v00000000000000ff")).ok());
  CHECK(rig.IsRefused());
}

TEST_CASE("one machine asks the API server for one volume at a time, and keeps no other waiting") {
  UseRig rig;
  rig.PutPod("n2", kData);
  std::vector<std::future<absl::Status>> refused;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 3; ++i)
    refused.push_back(std::async(std::launch::async, [&rig] { return rig.Check(); }));
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(rig.Check("n2").ok());
  CHECK(absl::Now() - begin < absl::Seconds(1));
  for (auto& each : refused) CHECK(absl::IsFailedPrecondition(each.get()));
  CHECK(absl::Now() - begin >= absl::Seconds(3));
}

TEST_CASE("a machine that asks for much that it does not use is told to come again, after some seconds") {
  UseRig rig;
  std::vector<std::future<absl::Status>> answers;
  for (int i = 0; i < 10; ++i)
    answers.push_back(std::async(std::launch::async, [&rig] { return rig.Check(); }));
  int refused = 0, sent_away = 0;
  const absl::Time begin = absl::Now();
  for (auto& each : answers) {
    const absl::Status status = each.get();
    refused += absl::IsFailedPrecondition(status);
    sent_away += absl::IsResourceExhausted(status);
  }
  CHECK(absl::Now() - begin < absl::Seconds(20));
  CHECK(refused > 0);
  CHECK(sent_away > 0);
  CHECK(refused + sent_away == 10);
}

}  // namespace lunkeeper::fencing
