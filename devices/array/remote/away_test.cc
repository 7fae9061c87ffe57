#include <catch2/catch.hpp>
#include <future>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "devices/array/remote/remote_array.h"
#include "devices/array/remote/testing/mute_agent.h"
#include "devices/array/remote/testing/test_agent.h"

namespace lunkeeper {
namespace {

// Takes calls and does not answer them until the end of the test: as one whose pool's disk hangs.
class HangingAgent final : public array::v1::ArrayService::Service {
 public:
  explicit HangingAgent(const absl::Notification& end) : end_(end) {}
  grpc::Status Capacity(grpc::ServerContext*, const array::v1::CapacityRequest*,
                        array::v1::CapacityResponse*) override {
    end_.WaitForNotification();
    return grpc::Status::OK;
  }
  grpc::Status FindNamed(grpc::ServerContext*, const array::v1::FindNamedRequest*,
                         array::v1::FindNamedResponse*) override {
    end_.WaitForNotification();
    return grpc::Status::OK;
  }

 private:
  const absl::Notification& end_;
};

}  // namespace

TEST_CASE("an agent that hangs is asked for a name, and for its room, for a moment, not for a whole call") {
  const testing::TestCa ca;
  testing::TestAgent agent(ca.Issue("agent", testing::kAgentNames));
  absl::Notification end;
  agent.Stop();
  agent.Wrap([&](auto&) { return std::make_unique<HangingAgent>(end); });
  agent.Start();
  RemoteArrayOptions options = agent.Options(ca.Issue("controller", testing::kControllerNames));
  options.call_timeout = absl::Seconds(60);  // as long as the sidecars wait
  options.search_timeout = absl::Milliseconds(500);
  const auto array = MakeRemoteArray(options);
  REQUIRE(array.ok());
  const absl::Status asked = (*array)->names().FindNamed(NamedKind::kVolume, "v").status();
  CHECK(absl::IsDeadlineExceeded(asked));
  auto room = std::async(std::launch::async, [&] { return (*array)->volumes().GetCapacity().status(); });
  CHECK(room.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  end.Notify();
  CHECK(absl::IsDeadlineExceeded(room.get()));
  agent.Stop();  // waits for the call
}

TEST_CASE("callers do not wait for an agent that was lost in the middle of a call, and it is found again") {
  const testing::TestCa ca;
  testing::TestAgent agent(ca.Issue("agent", testing::kAgentNames));
  const auto made = MakeRemoteArray(agent.Options(ca.Issue("controller", testing::kControllerNames)));
  REQUIRE(made.ok());
  RemoteArray& array = **made;
  VolumeSpec spec;
  spec.name = "v";
  spec.size_bytes = 1 << 20;
  const auto volume = array.volumes().CreateVolume(spec);
  REQUIRE(volume.ok());
  const auto acquire = [&](const char* node, absl::Duration wait) {
    return array.grants().AcquireGrant({.volume = volume->id, .node = NodeId(node)}, wait).status();
  };
  REQUIRE(acquire("a.0000000000000001", absl::ZeroDuration()).ok());
  auto waiting = std::async(std::launch::async, acquire, "b.0000000000000002", absl::Seconds(30));
  while (agent.Of().Waiting() == 0) absl::SleepFor(absl::Milliseconds(5));
  agent.Stop();
  REQUIRE(absl::IsUnavailable(waiting.get()));
  {
    const testing::MuteAgent mute(agent.address());
    const absl::Time began = absl::Now();
    CHECK(absl::IsUnavailable(array.volumes().GetCapacity().status()));
    CHECK(absl::Now() - began < absl::Milliseconds(1500));  // one attempt to connect takes two seconds
  }
  agent.Start();
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!array.volumes().GetCapacity().ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  CHECK(array.volumes().GetCapacity().ok());
}

}  // namespace lunkeeper
