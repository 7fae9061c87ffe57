// Which of several replicas leads, by what each of them sees.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "base/executor.h"
#include "fencing/failover/failover.h"
#include "fencing/failover/testing/failover_world.h"

namespace lunkeeper::fencing {
namespace {

constexpr char kEvents[] = "POST /apis/events.k8s.io/v1/namespaces/kube-system/";

Settings Soon() {
  Settings settings;
  settings.sighted = 1_s;
  return settings;
}

bool Leads(Failover& replica) { return Says(replica, "this replica leads", ""); }

}  // namespace

TEST_CASE("a leader that hears fewer nodes than another replica lets that one lead, and nobody is fenced") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.LetReplicasAsk();
  Failover& first = world.Start("replica-1", Soon());
  REQUIRE(Comes([&] { return Leads(first); }));
  Failover& second = world.Start("replica-2", Soon());
  world.CutOff(0, "n1");
  REQUIRE(Comes([&] { return Leads(second); }));
  CHECK_FALSE(Leads(first));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(Comes([&] { return world.api.CountWrites(kEvents) > 0; }));
  world.PowerOff("n1");
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
}

TEST_CASE("a leader that has lost an array which another replica sees lets that one lead") {
  Metrics metrics("controller");
  std::unique_ptr<lunkeeper::Arrays> first_arrays;
  FailoverWorld world;
  const auto lost = std::make_shared<FakeArray>(), seen = std::make_shared<FakeArray>();
  world.LetReplicasAsk();
  AddArray(world, lost);
  Failover& first = world.Start("replica-1", Soon());
  REQUIRE(Comes([&] { return Leads(first); }));
  lost->FailWith(absl::UnavailableError("no way to it from here"));
  const auto shows = [&](const std::string& line) {
    first.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), line);
  };
  // Alone it leads on, and says what it does nothing for.
  REQUIRE(Comes([&] { return shows("lunkeeper_failover_unseen_arrays 1"); }));
  CHECK(Comes([&] { return world.api.CountWrites(kEvents) > 0; }));
  CHECK(Leads(first));
  first_arrays = std::move(world.arrays);
  AddArray(world, seen);
  Failover& second = world.Start("replica-2", Soon());
  CHECK(Comes([&] { return Leads(second); }));
}

// A dead one would delay it by a second, in which nobody leads.
TEST_CASE("a leader that ends gives the lease up while another replica, which it asked, does not answer") {
  FailoverWorld world;
  absl::Mutex mutex;
  std::vector<std::function<void(const ReplicaVotes&)>> unanswered;
  const auto count = [&] {
    absl::MutexLock lock(&mutex);
    return unanswered.size();
  };
  world.ask_replicas = [&](const NodeId&, auto answered) {
    absl::MutexLock lock(&mutex);
    unanswered.push_back(std::move(answered));
  };
  world.Start("replica-1");
  REQUIRE(Comes([&] { return count() > 0; }));
  CHECK(world.LeaseHolder() == "replica-1");
  const auto ending = RealExecutor().StartThread([&] { world.StopReplica(0); });
  CHECK(Comes([&] { return world.LeaseHolder().empty(); }, absl::Seconds(10)));
  absl::MutexLock lock(&mutex);
  for (const auto& answered : unanswered) answered({});
}

}  // namespace lunkeeper::fencing
