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

TEST_CASE("what a pod must run beside: pods of its namespace, by host, one that meets all of the terms") {
  const Json app = {{"matchLabels", {{"app", "db"}}}}, tier = Expression("tier", "In", {"data", "cache"});
  const Json term = {{"labelSelector", app}, {"topologyKey", "kubernetes.io/hostname"}};
  const auto beside = [](const Json& terms) {
    const Json affinity = {{"podAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", terms}}}};
    return ReadScheduling({{"spec", {{"affinity", affinity}}}}).beside;
  };
  const auto labelled = [](const Json& labels) { return ReadLabels({{"metadata", {{"labels", labels}}}}); };
  CHECK_FALSE(beside(Json::array()).has_value());
  CHECK(SelectsPod(beside(Json::array({term})).value(), labelled({{"app", "db"}, {"pod", "db-1"}})));
  CHECK_FALSE(SelectsPod(beside(Json::array({term})).value(), labelled({{"app", "web"}})));
  Json second = term;
  second["labelSelector"] = tier;
  const auto both = beside(Json::array({term, second})).value();
  CHECK(SelectsPod(both, labelled({{"app", "db"}, {"tier", "cache"}})));
  CHECK_FALSE(SelectsPod(both, labelled({{"app", "db"}})));
  Json any = term;
  any["labelSelector"] = Json::object();
  CHECK(SelectsPod(beside(Json::array({any})).value(), Labels()));
}

TEST_CASE("affinity of which a part is not understood is not read at all") {
  const Json term = {{"labelSelector", {{"matchLabels", {{"app", "db"}}}}},
                     {"topologyKey", "kubernetes.io/hostname"}};
  const auto beside = [&](const char* field, const Json& value) {
    Json other = term;
    other[field] = value;
    const Json terms = Json::array({term, other});
    const Json affinity = {{"podAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", terms}}}};
    return ReadScheduling({{"spec", {{"affinity", affinity}}}}).beside;
  };
  CHECK(beside("topologyKey", "kubernetes.io/hostname").has_value());
  CHECK_FALSE(beside("topologyKey", "topology.kubernetes.io/zone").has_value());
  CHECK_FALSE(beside("namespaces", {"other"}).has_value());
  CHECK_FALSE(beside("namespaceSelector", Json::object()).has_value());
  CHECK_FALSE(beside("labelSelector", nullptr).has_value());
}

TEST_CASE("topology spread is read where it counts a tainted node, by host, and keeps pods out") {
  const Json constraint = {{"maxSkew", 2},
                           {"topologyKey", "kubernetes.io/hostname"},
                           {"whenUnsatisfiable", "DoNotSchedule"},
                           {"labelSelector", {{"matchLabels", {{"app", "db"}}}}}};
  const auto read = [&](const char* field, const Json& value) {
    Json other = constraint;
    other[field] = value;
    return ReadScheduling({{"metadata", {{"labels", {{"app", "db"}, {"pod", "db-1"}}}}},
                           {"spec", {{"topologySpreadConstraints", Json::array({other})}}}})
        .spread;
  };
  REQUIRE(read("nodeTaintsPolicy", "Ignore").size() == 1);
  CHECK(read("nodeTaintsPolicy", "Ignore")[0].max_skew == 2);
  CHECK(SelectsPod(read("minDomains", 3)[0].like, ReadLabels({{"metadata", {{"labels", {{"app", "db"}}}}}})));
  CHECK(read("nodeTaintsPolicy", "Honor").empty());
  CHECK(read("topologyKey", "topology.kubernetes.io/zone").empty());
  CHECK(read("whenUnsatisfiable", "ScheduleAnyway").empty());
  CHECK(read("matchLabelKeys", {"pod-template-hash"}).empty());
  CHECK(read("labelSelector", {{"matchLabels", {{"app", "web"}}}}).empty());  // of others
  CHECK(read("maxSkew", 0).empty());
}

TEST_CASE("what a pod asks for at least: its containers together, or one that goes before them") {
  const auto container = [](const char* cpu, const char* memory) {
    return Json{{"resources", {{"requests", {{"cpu", cpu}, {"memory", memory}}}}}};
  };
  Json pod = {
      {"spec", {{"containers", {container("500m", "1Gi"), container("1", "512Mi"), Json::object()}}}}};
  CHECK(ReadRequests(pod) == Resources{1500, 1536});
  pod["spec"]["initContainers"] = {container("100m", "2Gi"), container("1", "1Gi")};
  CHECK(ReadRequests(pod) == Resources{1500, 2048});
  pod["spec"]["resources"]["requests"]["cpu"] = "3";
  CHECK(ReadRequests(pod) == Resources{3000, 2048});
  CHECK(ReadRequests({{"spec", {{"containers", {container("much", "1.9Mi")}}}}}) == Resources{0, 1});
}

TEST_CASE("a node has room for what is not more than it has at all; one that does not say, for everything") {
  const auto node = [](const Json& has) { return ReadNodeLabels({{"status", {{"allocatable", has}}}}); };
  const auto small = node({{"cpu", "3920m"}, {"memory", "1048577"}, {"nvidia.com/gpu", "1"}});
  CHECK(HasRoom(small, {3920, 2}));  // of memory a little more than 1 MiB
  CHECK_FALSE(HasRoom(small, {3921, 2}));
  CHECK_FALSE(HasRoom(small, {3920, 3}));
  CHECK(HasRoom(node(Json::object()), {1'000'000, 1'000'000}));
  CHECK(HasRoom(node({{"cpu", "9999999999"}, {"memory", "9Ei"}}), ReadRequests(Json::object())));
}

}  // namespace lunkeeper::fencing
