#include "fencing/failover/read_scheduling.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {
namespace {

using kube::Json;

Json NodeWith(const Json& labels, const Json& spec = Json::object()) {
  return {{"metadata", {{"name", "n1"}, {"labels", labels}}}, {"spec", spec}};
}
Json Tainted(const std::string& key, const std::string& value, const std::string& effect) {
  return NodeWith(Json::object(), {{"taints", {{{"key", key}, {"value", value}, {"effect", effect}}}}});
}
Json Affine(const Json& terms) {
  return {{"affinity",
           {{"nodeAffinity",
             {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", terms}}}}}}}};
}
Json Expression(const std::string& key, const std::string& how, const Json& values = Json::array()) {
  return {{"matchExpressions", {{{"key", key}, {"operator", how}, {"values", values}}}}};
}
Json Tolerating(const Json& toleration) { return {{"tolerations", Json::array({toleration})}}; }

bool Fit(const Json& spec, const Json& node) {
  return Fits(ReadScheduling({{"spec", spec}}), ReadNodeLabels(node));
}

}  // namespace

TEST_CASE(
    "a pod that asks for nothing fits a node with any labels, and a node selector asks for each of its own") {
  const Json node = NodeWith({{"disk", "fast"}, {"zone", "a"}});
  CHECK(Fit(Json::object(), node));
  CHECK(Fit({{"nodeSelector", {{"disk", "fast"}}}}, node));
  CHECK(Fit({{"nodeSelector", {{"disk", "fast"}, {"zone", "a"}}}}, node));
  CHECK_FALSE(Fit({{"nodeSelector", {{"disk", "fast"}, {"zone", "b"}}}}, node));
  CHECK_FALSE(Fit({{"nodeSelector", {{"gpu", ""}}}}, node));
}

TEST_CASE("required node affinity: each operator, as the scheduler reads it") {
  const Json node = NodeWith({{"disk", "fast"}, {"cores", "16"}});
  const auto fits = [&](const std::string& key, const std::string& how, const Json& values = Json::array()) {
    return Fit(Affine(Json::array({Expression(key, how, values)})), node);
  };
  CHECK(fits("disk", "In", {"slow", "fast"}));
  CHECK_FALSE(fits("disk", "In", {"slow"}));
  CHECK(fits("disk", "NotIn", {"slow"}));
  CHECK(fits("gpu", "NotIn", {"any"}));
  CHECK_FALSE(fits("disk", "NotIn", {"fast"}));
  CHECK(fits("disk", "Exists"));
  CHECK_FALSE(fits("gpu", "Exists"));
  CHECK(fits("gpu", "DoesNotExist"));
  CHECK_FALSE(fits("disk", "DoesNotExist"));
  CHECK(fits("cores", "Gt", {"15"}));
  CHECK_FALSE(fits("cores", "Gt", {"16"}));
  CHECK(fits("cores", "Lt", {"17"}));
  CHECK_FALSE(fits("cores", "Lt", {"16"}));
  CHECK_FALSE(fits("disk", "Gt", {"1"}));
  CHECK_FALSE(fits("disk", "Resembles", {"fast"}));  // of a later Kubernetes
}

TEST_CASE("of several terms one has to be met, all of it; an empty one is met by no node") {
  const Json node = NodeWith({{"disk", "fast"}});
  const Json fast = Expression("disk", "In", {"fast"}), gpu = Expression("gpu", "Exists");
  Json both = fast;
  both["matchExpressions"].push_back(gpu["matchExpressions"][0]);
  CHECK(Fit(Affine(Json::array({gpu, fast})), node));
  CHECK_FALSE(Fit(Affine(Json::array({gpu, both})), node));
  CHECK_FALSE(Fit(Affine(Json::array({Json::object()})), node));
  Json spec = Affine(Json::array({fast}));
  spec["nodeSelector"] = {{"zone", "a"}};
  CHECK_FALSE(Fit(spec, node));
}

TEST_CASE("a field of an affinity is the node's name, and no label can pretend to be it") {
  const auto named = [](const std::string& name) {
    const Json term = {
        {"matchFields", {{{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({name})}}}}};
    return Affine(Json::array({term}));
  };
  CHECK(Fit(named("n1"), NodeWith(Json::object())));
  CHECK_FALSE(Fit(named("n2"), NodeWith({{"metadata.name", "n2"}})));
}

TEST_CASE("a foreign taint keeps out whoever does not tolerate its key, value and effect") {
  const Json node = Tainted("role", "db", "NoSchedule");
  CHECK_FALSE(Fit(Json::object(), node));
  CHECK(Fit(Tolerating({{"key", "role"}, {"value", "db"}}), node));
  CHECK(Fit(Tolerating({{"key", "role"}, {"operator", "Equal"}, {"value", "db"}, {"effect", "NoSchedule"}}),
            node));
  CHECK(Fit(Tolerating({{"key", "role"}, {"operator", "Exists"}}), node));
  CHECK(Fit(Tolerating({{"operator", "Exists"}}), node));
  CHECK_FALSE(Fit(Tolerating({{"key", "role"}, {"value", "web"}}), node));
  CHECK_FALSE(Fit(Tolerating({{"key", "role"}, {"operator", "Exists"}, {"effect", "NoExecute"}}), node));
  CHECK_FALSE(Fit(Tolerating({{"key", "role"}, {"operator", "Below"}, {"value", "db"}}), node));
  CHECK_FALSE(Fit(Json::object(), Tainted("role", "db", "NoExecute")));
  CHECK(Fit(Json::object(), Tainted("role", "db", "PreferNoSchedule")));
}

TEST_CASE("our own taints are no foreign ones: no pod is placed there, whatever it tolerates") {
  for (const char* key : {"lunkeeper.io/fenced", "lunkeeper.io/plugin-not-ready"})
    CHECK(ReadNodeLabels(Tainted(key, "", "NoSchedule")).taints.empty());
}

TEST_CASE("a cordoned node is like a tainted one") {
  const Json node = NodeWith(Json::object(), {{"unschedulable", true}});
  CHECK_FALSE(Fit(Json::object(), node));
  CHECK(Fit(Tolerating({{"key", "node.kubernetes.io/unschedulable"}, {"operator", "Exists"}}), node));
}

TEST_CASE("of what nearly every pod tolerates nothing is kept") {
  const auto tolerates = [](const char* key) {
    return Json{{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}};
  };
  const Json spec = {
      {"tolerations",
       {tolerates("node.kubernetes.io/not-ready"), tolerates("node.kubernetes.io/unreachable")}}};
  CHECK(ReadScheduling({{"spec", spec}}) == Scheduling());
}

TEST_CASE("a volume that is tied to nodes says which; one that is not asks for nothing") {
  const Json required = {{"nodeSelectorTerms", Json::array({Expression("row", "In", {"1", "2"})})}};
  const Json volume = {{"spec", {{"nodeAffinity", {{"required", required}}}}}};
  CHECK(Fits(ReadPlaces(volume), ReadNodeLabels(NodeWith({{"row", "2"}}))));
  CHECK_FALSE(Fits(ReadPlaces(volume), ReadNodeLabels(NodeWith({{"row", "3"}}))));
  CHECK_FALSE(Fits(ReadPlaces(volume), ReadNodeLabels(NodeWith(Json::object()))));
  CHECK(ReadPlaces({{"spec", Json::object()}}) == Scheduling());
}

TEST_CASE("replicas that must not share a host are known as such; other anti-affinity is not read") {
  const auto apart = [](const std::string& space, const Json& labels, const Json& term) {
    const Json affinity = {
        {"podAntiAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", Json::array({term})}}}};
    return ReadScheduling(
               {{"metadata", {{"namespace", space}, {"labels", labels}}}, {"spec", {{"affinity", affinity}}}})
        .anti_affinity;
  };
  const Json db = {{"app", "db"}}, web = {{"app", "web"}};
  const Json term = {{"labelSelector", {{"matchLabels", db}}}, {"topologyKey", "kubernetes.io/hostname"}};
  const auto replica = apart("prod", db, term);
  REQUIRE(replica.size() == 1);
  CHECK(apart("prod", {{"app", "db"}, {"pod", "db-1"}}, term) == replica);
  CHECK(apart("test", db, term) != replica);
  CHECK(apart("prod", web, term).empty());  // it keeps away from others, not from its like
  Json other = term;
  other["topologyKey"] = "topology.kubernetes.io/zone";
  CHECK(apart("prod", db, other).empty());
  other = term;
  other["namespaces"] = {"prod"};
  CHECK(apart("prod", db, other).empty());
  other = term;
  other["labelSelector"] = Expression("app", "In", {"db", "cache"});
  CHECK(apart("prod", db, other).size() == 1);
}

}  // namespace lunkeeper::fencing
