#include "plugin/cluster_calls.h"

#include <catch2/catch.hpp>
#include <string>

namespace lunkeeper {

using Catch::Contains;

TEST_CASE(
    "a cluster is silent once it has not called for long enough, and the agent has been there to hear") {
  ClusterCalls::Time now{};
  ClusterCalls calls([&] { return now; });
  const ClusterId cluster("old");
  const auto said = [&] { return std::string(calls.CheckSilent(cluster).message()); };
  CHECK(absl::IsFailedPrecondition(calls.CheckSilent(cluster)));
  now += std::chrono::seconds(10);
  CHECK_THAT(said(), Contains("runs for 10 s") && Contains("in 20 s"));
  now += std::chrono::seconds(20);
  CHECK(calls.CheckSilent(cluster).ok());
  calls.NoteCall(cluster);
  now += std::chrono::seconds(29);
  CHECK_THAT(said(), Contains("called this agent 29 s ago"));
  CHECK(calls.CheckSilent(ClusterId("other")).ok());
  now += std::chrono::seconds(1);
  CHECK(calls.CheckSilent(cluster).ok());
}

}  // namespace lunkeeper
