#include "fencing/failover/object_cache.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <vector>

namespace lunkeeper::fencing {
namespace {

using kube::Json;

// What was said last of each pod and node.
struct Heard {
  std::map<std::string, Pod> pods;
  std::map<std::string, Node> nodes;
  std::vector<VolumeCharged> charges;
  ObjectCache objects{[this](auto what) {
    if (const auto* pod = std::get_if<PodSeen>(&what)) pods[pod->pod.id.value()] = pod->pod;
    if (const auto* gone = std::get_if<PodGone>(&what)) pods.erase(gone->pod.value());
    if (const auto* node = std::get_if<NodeSeen>(&what)) nodes[node->node.name.value()] = node->node;
    if (const auto* charge = std::get_if<VolumeCharged>(&what)) charges.push_back(*charge);
    if (const auto* gone = std::get_if<NodeGone>(&what)) nodes.erase(gone->node.value());
  }};

  void AddPod(const Json& spec, const Json& metadata = Json::object()) {
    Json pod = {{"metadata", metadata}, {"spec", spec}, {"status", {{"phase", "Running"}}}};
    pod["metadata"]["namespace"] = "db";
    pod["metadata"]["name"] = "p";
    const auto facts = ReadPod(pod);
    objects.OnPod("db/p", facts ? std::make_shared<const PodFacts>(*facts) : nullptr);
  }
  void AddVolume(const std::string& name, const std::string& claim, const std::string& driver,
                 const std::string& phase = "Bound", const Json& metadata = Json::object()) {
    const auto facts = ReadVolume({{"metadata", metadata},
                                   {"spec",
                                    {{"csi", {{"driver", driver}, {"volumeHandle", "a1-v" + name}}},
                                     {"storageClassName", "fast"},
                                     {"claimRef", {{"namespace", "db"}, {"name", claim}}}}},
                                   {"status", {{"phase", phase}}}});
    objects.OnVolume(name, facts ? std::make_shared<const VolumeFacts>(*facts) : nullptr);
  }
};

const Json kClaim = {{"name", "data"}, {"persistentVolumeClaim", {{"claimName", "data"}}}};
constexpr char kOurs[] = "csi.lunkeeper.io";

}  // namespace

TEST_CASE("what nodes died of is told when it changes, and of no volume that is free of it") {
  Heard heard;
  const auto mark = [](const std::string& nodes) {
    return Json{{"annotations", {{kMountDeathsKey, nodes}}}};
  };
  heard.AddVolume("1", "data", kOurs);
  CHECK(heard.charges.empty());
  heard.AddVolume("1", "data", kOurs, "Bound", mark(" n1.a, n2.b "));
  REQUIRE(heard.charges.size() == 1);
  CHECK(heard.charges[0].volume == VolumeId("a1-v1"));
  CHECK(heard.charges[0].nodes == ChargedNodes{NodeId("n1.a"), NodeId("n2.b")});
  heard.AddVolume("1", "data", kOurs, "Bound", mark("n1.a,n2.b"));
  CHECK(heard.charges.size() == 1);
  heard.objects.OnVolume("1", nullptr);
  REQUIRE(heard.charges.size() == 2);
  CHECK((heard.charges[1].volume == VolumeId("a1-v1") && heard.charges[1].nodes.empty()));
}

// The core believed its own write that cleared it, and a restore of the cluster has undone that.
TEST_CASE("what nodes died of is told once more when the same facts come again") {
  Heard heard;
  VolumeFacts facts;
  facts.claim = "db/data", facts.volume = VolumeId("a1-v1"), facts.charged = {NodeId("n1.a")};
  const auto charged = std::make_shared<const VolumeFacts>(facts);
  heard.objects.OnVolume("1", charged);
  heard.objects.OnVolume("1", charged);
  REQUIRE(heard.charges.size() == 2);
  CHECK(heard.charges[1].nodes == ChargedNodes{NodeId("n1.a")});
}

TEST_CASE("a pod's raw block volumes are told apart") {
  Heard heard;
  heard.AddPod({{"volumes", {kClaim}}});
  VolumeFacts facts{"db/data", VolumeId("a1-v0000000000000001"), "fast"};
  heard.objects.OnVolume("1", std::make_shared<const VolumeFacts>(facts));
  CHECK(heard.pods.at("db/p").raw.empty());
  facts.block = true;
  heard.objects.OnVolume("1", std::make_shared<const VolumeFacts>(facts));
  CHECK(heard.pods.at("db/p").raw == VolumeSet{facts.volume});
}

TEST_CASE("a volume is used on the node of a pod with its claim, by whichever of its PersistentVolumes") {
  Heard heard;
  const auto uses = [&](const std::string& node, const std::string& volume = "a1-v1") {
    return heard.objects.IsUsedOn(NodeName(node), VolumeId(volume));
  };
  const Json spec = {{"nodeName", "n1"}, {"volumes", Json::array({kClaim})}};
  heard.AddPod(spec);
  CHECK_FALSE(uses("n1"));
  heard.AddVolume("1", "data", kOurs);
  CHECK(uses("n1"));
  CHECK_FALSE(uses("n2"));
  CHECK_FALSE(uses("n1", "a1-v2"));
  // A second one for the same volume, made by hand, which no pod uses.
  VolumeFacts second;
  second.volume = VolumeId("a1-v1");
  second.claim = "other/data";
  heard.objects.OnVolume("second", std::make_shared<const VolumeFacts>(second));
  CHECK(uses("n1"));
  CHECK(heard.objects.ListVolumesOf(VolumeId("a1-v1")).size() == 2);
  heard.objects.OnVolume("second", nullptr);
  CHECK(uses("n1"));
  CHECK(heard.objects.ListVolumesOf(VolumeId("a1-v1")) == std::vector<std::string>{"1"});
  heard.AddPod(spec, {{"deletionTimestamp", "2026-11-21T00:00:00Z"}});
  CHECK(uses("n1"));
  // Another volume is bound to the claim now.
  heard.AddVolume("2", "data", kOurs);
  CHECK_FALSE(uses("n1"));
  CHECK(uses("n1", "a1-v2"));
  heard.objects.OnVolume("2", nullptr);
  heard.objects.OnPod("db/p", nullptr);
  CHECK_FALSE(uses("n1"));
}

TEST_CASE("the owner's kind comes with its API group") {
  const auto kind_of = [](const Json& owner) {
    return ReadAnyPod({{"metadata", {{"namespace", "db"}, {"name", "p"}, {"ownerReferences", owner}}},
                       {"spec", {{"volumes", {kClaim}}}}})
        ->owner_kind;
  };
  const Json first = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"name", "of no controller"}};
  const auto owned = [&](const std::string& version, const std::string& kind) {
    return kind_of({first, {{"apiVersion", version}, {"kind", kind}, {"controller", true}}});
  };
  CHECK(owned("postgresql.cnpg.io/v1", "Cluster") == "Cluster.postgresql.cnpg.io");
  CHECK(owned("core.strimzi.io/v1beta2", "StrimziPodSet") == "StrimziPodSet.core.strimzi.io");
  CHECK(owned("apps/v1", "StatefulSet") == "StatefulSet.apps");
  CHECK(owned("v1", "ReplicationController") == "ReplicationController");
  CHECK(kind_of({first}).empty());
  CHECK(kind_of(Json::array()).empty());
}

TEST_CASE("a pod without a claim is known only if it says itself that it is to be moved") {
  Heard heard;
  const FailoverPolicy always = FailoverPolicy::kAlways, never = FailoverPolicy::kNever;
  const auto says = [](const std::string& value) { return Json{{"labels", {{kFailoverKey, value}}}}; };
  heard.objects.OnNamespace("db", &always);
  heard.AddPod({{"volumes", {{{"name", "scratch"}, {"emptyDir", Json::object()}}}}});
  CHECK(heard.pods.empty());
  heard.AddPod(Json::object(), says("never"));
  CHECK(heard.pods.empty());
  heard.AddPod(Json::object(), says("always"));
  REQUIRE(heard.pods.size() == 1);
  CHECK(heard.pods.at("db/p").policy == FailoverPolicy::kAlways);
  CHECK_FALSE(heard.pods.at("db/p").foreign_volumes);
  heard.objects.OnNamespace("db", &never);
  CHECK(heard.pods.at("db/p").policy == FailoverPolicy::kNever);
  heard.AddPod(Json::object());  // the label is taken off
  CHECK(heard.pods.empty());
}

TEST_CASE("a pod's volumes are found whichever of the objects comes first") {
  const std::string id = "0000000000000001";
  Heard pod_first, volume_first;
  pod_first.AddPod({{"volumes", {kClaim}}});
  CHECK(pod_first.pods["db/p"].foreign_volumes);  // nobody knows yet
  pod_first.AddVolume(id, "data", kOurs);
  volume_first.AddVolume(id, "data", kOurs);
  volume_first.AddPod({{"volumes", {kClaim}}});
  for (Heard* heard : {&pod_first, &volume_first}) {
    CHECK_FALSE(heard->pods["db/p"].foreign_volumes);
    CHECK(heard->pods["db/p"].volumes == VolumesByArray{{ArrayId("a1"), {VolumeId("a1-v" + id)}}});
  }
  pod_first.AddVolume(id, "data", kOurs, "Released");
  CHECK(pod_first.pods["db/p"].foreign_volumes);
}

TEST_CASE("of a pod is known what others look for, and what it asks for itself") {
  Heard heard;
  const Json requests = {{"requests", {{"cpu", "2"}, {"memory", "3Mi"}}}};
  heard.AddPod(
      {{"volumes", {kClaim}}, {"nodeSelector", {{"row", "1"}}}, {"containers", {{{"resources", requests}}}}},
      {{"labels", {{"app", "db"}}}});
  const Pod& pod = heard.pods["db/p"];
  CHECK(*pod.labels == Labels{{HashLabel("app"), HashLabel("db")}});
  CHECK(pod.asks == Resources{2000, 3});
  CHECK(pod.scheduling->selector.size() == 1);
}

TEST_CASE("a pod goes where its volumes are tied to") {
  Heard heard;
  heard.AddPod({{"volumes", {kClaim}}});
  const Json row = {{"key", "row"}, {"operator", "In"}, {"values", {"1"}}};
  const Json terms = {{"nodeSelectorTerms", {{{"matchExpressions", Json::array({row})}}}}};
  const auto facts = ReadVolume({{"spec",
                                  {{"csi", {{"driver", kOurs}, {"volumeHandle", "a1-v0000000000000001"}}},
                                   {"nodeAffinity", {{"required", terms}}},
                                   {"claimRef", {{"namespace", "db"}, {"name", "data"}}}}},
                                 {"status", {{"phase", "Bound"}}}});
  heard.objects.OnVolume("v", std::make_shared<const VolumeFacts>(*facts));
  REQUIRE(heard.pods["db/p"].places.size() == 1);
  const Label label{HashLabel("row"), HashLabel("1")};
  CHECK(Fits(*heard.pods["db/p"].places[0], {{label}, {}}));
  CHECK_FALSE(Fits(*heard.pods["db/p"].places[0], {}));
}

TEST_CASE(
    "a pod with another driver's volume has foreign volumes; one without persistent volumes is not kept") {
  Heard heard;
  heard.AddVolume("0000000000000001", "data", "other.example.com");
  heard.AddPod({{"volumes", {kClaim}}});
  CHECK(heard.pods["db/p"].foreign_volumes);
  heard.AddPod({{"volumes", {{{"name", "x"}, {"emptyDir", Json::object()}}}}});
  CHECK_FALSE(heard.pods.contains("db/p"));
}

TEST_CASE("never wins, whoever says it: pod, namespace or StorageClass; a word that is neither means never") {
  Heard heard;
  heard.AddVolume("0000000000000001", "data", kOurs);
  heard.AddPod({{"volumes", {kClaim}}}, {{"labels", {{kFailoverKey, "always"}}}});
  CHECK(heard.pods["db/p"].policy == FailoverPolicy::kAlways);
  const FailoverPolicy never = FailoverPolicy::kNever;
  heard.objects.OnStorageClass("fast", &never);
  CHECK(heard.pods["db/p"].policy == FailoverPolicy::kNever);
  heard.objects.OnStorageClass("fast", nullptr);
  CHECK(heard.pods["db/p"].policy == FailoverPolicy::kAlways);
  heard.objects.OnNamespace("db", &never);
  CHECK(heard.pods["db/p"].policy == FailoverPolicy::kNever);
  heard.objects.OnNamespace("db", nullptr);
  heard.AddPod({{"volumes", {kClaim}}}, {{"annotations", {{kFailoverKey, "sometimes"}}}});
  CHECK(heard.pods["db/p"].policy == FailoverPolicy::kNever);
}

TEST_CASE("our taint leads back to the whole name of its NodeFence, however long the machine's is") {
  const NodeId node(std::string(200, 'n') + ".00000000000000aa");
  CHECK(TaintValueOf(node).size() <= 63);
  const std::string name = NameOf(node).value();
  NodeFacts facts;
  facts.taints = kube::ToText(WithTaint(R"([{"key":"other","effect":"NoExecute"}])", TaintValueOf(node)));
  Heard heard;
  heard.objects.OnNode(name, std::make_shared<const NodeFacts>(facts));
  heard.objects.OnNodeId(name, std::make_shared<const NodeId>(node));
  CHECK(heard.nodes[name].taint == node.value());
  CHECK(heard.nodes[name].node_id == node);
  CHECK(kube::ToText(WithTaint(facts.taints, "")) == R"([{"effect":"NoExecute","key":"other"}])");
}

TEST_CASE("the taint of a silent plugin is apart from that of a fence, and shows who put it") {
  const std::string fenced = kube::ToText(WithTaint("", "00000000000000aa"));
  const std::string both = kube::ToText(WithTaint(fenced, kPluginSilent, kPluginTaintKey));
  CHECK(TaintIn(both) == "00000000000000aa");
  CHECK(PluginTaintIn(both) == PluginTaint::kByLeader);
  CHECK(kube::ToText(WithTaint(both, kPluginSilent, kPluginTaintKey)) == both);
  CHECK(kube::ToText(WithTaint(both, "", kPluginTaintKey)) == fenced);
  CHECK(PluginTaintIn(kube::ToText(WithTaint(both, ""))) == PluginTaint::kByLeader);
  CHECK(PluginTaintIn(fenced) == PluginTaint::kNone);
  NodeFacts facts;
  facts.taints = R"([{"effect":"NoSchedule","key":"lunkeeper.io/plugin-not-ready"}])";
  Heard heard;
  heard.objects.OnNode("n1", std::make_shared<const NodeFacts>(facts));
  CHECK(heard.nodes["n1"].plugin_taint == PluginTaint::kAtStart);
}

TEST_CASE("the driver's own pods are known by their label, in its own namespace alone") {
  const Json pod = {
      {"metadata", {{"namespace", "storage"}, {"name", "node-1"}, {"labels", {{kPluginLabel, "node"}}}}},
      {"spec", {{"nodeName", "n1"}}},
      {"status", {{"phase", "Pending"}}}};
  const auto facts = ReadPod(pod, "storage");
  REQUIRE(facts);
  Heard heard;
  heard.objects.OnPod("storage/node-1", std::make_shared<const PodFacts>(*facts));
  CHECK(heard.pods["storage/node-1"].plugin);
  CHECK(heard.pods["storage/node-1"].node == NodeName("n1"));
  CHECK_FALSE(ReadPod(pod, "another"));
  CHECK_FALSE(ReadPod(pod, ""));
  Json foreign = pod;
  foreign["metadata"]["labels"] = {{"app.kubernetes.io/component", "node"}};
  CHECK_FALSE(ReadPod(foreign, "storage"));
  Json with_claim = pod;
  with_claim["spec"]["volumes"] = Json::array({kClaim});
  const auto other = ReadPod(with_claim, "storage");
  REQUIRE(other);
  CHECK_FALSE(other->plugin);
  CHECK(other->claims == std::vector<std::string>{"storage/data"});
}

}  // namespace lunkeeper::fencing
