#include "fencing/failover/failover_metrics.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper::fencing {

TEST_CASE("nodes that take no new pods, as their plugin is silent, are counted whoever put the taint") {
  State state{Settings()};
  Metrics metrics("controller");
  const auto taint = [&](const char* name, PluginTaint by) {
    Node node;
    node.name = NodeName(name);
    node.plugin_taint = by;
    state.cluster.StoreObject(node);
  };
  const auto counts = [&](int nodes) {
    ReportFailoverMetrics(state, metrics);
    return absl::StrContains(metrics.ToText(),
                             absl::StrCat("\nlunkeeper_failover_plugin_tainted_nodes ", nodes, "\n"));
  };
  taint("n1", PluginTaint::kNone);
  CHECK(counts(0));
  taint("n1", PluginTaint::kByLeader);
  taint("n2", PluginTaint::kAtStart);
  taint("n3", PluginTaint::kNone);
  CHECK(counts(2));
}

}  // namespace lunkeeper::fencing
