// An array with two agents, of which one serves it.

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <optional>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/testing/mute_agent.h"
#include "devices/array/remote/testing/remote_array_fixture.h"

namespace lunkeeper::testing {
namespace {

namespace v1 = array::v1;

const absl::Status kNotServing = absl::UnavailableError("this agent does not serve array a1 now");

// The array as it is, and as the gateway knows it that had it before.
struct TwoAgents {
  std::unique_ptr<RemoteArray> ConnectTo(std::vector<std::string> addresses) {
    RemoteArrayOptions options = serving.Options(ControllerTls());
    options.addresses = std::move(addresses);
    options.call_timeout = call_timeout;
    options.copy_timeout = copy_timeout;
    return Connect(options);
  }
  std::unique_ptr<RemoteArray> ConnectToBoth() { return ConnectTo({old.address(), serving.address()}); }
  VolumeId MustCreate(Array& array) {
    VolumeSpec spec;
    spec.name = "v";
    spec.size_bytes = 1 << 20;
    const auto made = array.volumes().CreateVolume(spec);
    INFO(made.status());
    REQUIRE(made.ok());
    return made->id;
  }
  // What refuses a call, once it is this: a connection that was lost is made anew in its own time.
  static bool IsRefused(Array& array, const std::string& text) {
    return Eventually([&] {
      const absl::Status refused = array.volumes().GetCapacity().status();
      return absl::IsUnavailable(refused) && absl::StrContains(refused.message(), text);
    });
  }
  absl::Duration call_timeout = kLong, copy_timeout = absl::Seconds(1);
  TestAgent old{AgentTls()}, serving{AgentTls()};
};

// Takes a call and is silent, until the test ends.
class SilentAgent final : public v1::ArrayService::Service {
 public:
  explicit SilentAgent(const absl::Notification& end) : end_(end) {}
  grpc::Status Capacity(grpc::ServerContext*, const v1::CapacityRequest*, v1::CapacityResponse*) override {
    end_.WaitForNotification();
    return grpc::Status::OK;
  }

 private:
  const absl::Notification& end_;
};

// Does not serve; before it says so, the clock is set.
class ClockSettingAgent final : public v1::ArrayService::Service {
 public:
  explicit ClockSettingAgent(std::function<void()> set_clock) : set_clock_(std::move(set_clock)) {}
  grpc::Status Capacity(grpc::ServerContext*, const v1::CapacityRequest*, v1::CapacityResponse*) override {
    set_clock_();
    AwaitAbseilsClock();
    return {grpc::StatusCode::UNAVAILABLE, "not serving"};
  }

 private:
  const std::function<void()> set_clock_;
};

}  // namespace

TEST_CASE_METHOD(TwoAgents, "a call goes to the agent that runs, and comes back when that one has stopped") {
  old.ShareArrays(serving);
  const auto array = ConnectToBoth();
  old.Stop();
  const VolumeId volume = MustCreate(*array);
  CHECK(array->CheckServing(kLong).ok());
  serving.Stop();
  old.Start();
  CHECK(Eventually([&] { return array->volumes().GetVolume(volume).ok(); }));
}

TEST_CASE_METHOD(TwoAgents, "an agent that does not serve the array is not believed, whatever it answers") {
  const auto before = ConnectTo({old.address()}), now = ConnectTo({serving.address()});
  const VolumeId volume = MustCreate(*now);
  REQUIRE(now->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  const Term term = now->fences().BeginTerm("leader").value();
  REQUIRE(before->fences().BeginTerm("leader").value() == term);
  REQUIRE(before->fences().FenceNode(term, {.node = kNodeB}).ok());
  old.SetServing(kNotServing);
  old.Of().LandHeartbeat(kNodeB);

  for (int i = 0; i < 2; ++i) {  // one that was asked in vain is not asked first again
    const auto array = i == 0 ? ConnectToBoth() : ConnectTo({serving.address(), old.address()});
    CHECK(array->volumes().GetVolume(volume).ok());  // it is not "not found"
    CHECK(array->grants().ListGrants({})->size() == 1);
    CHECK(array->fences().ListFences()->empty());
    CHECK(array->fences().ListHeartbeats()->empty());
  }
  // It has no such grant, and would say "released".
  const auto array = ConnectToBoth();
  REQUIRE(array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, 0).ok());
  CHECK(serving.Of().ListGrants({})->empty());
}

TEST_CASE_METHOD(TwoAgents, "where no agent serves the array, it is not there, and each one says why") {
  const auto array = ConnectToBoth();
  old.Stop();
  serving.SetServing(kNotServing);
  const absl::Status refused = array->volumes().GetCapacity().status();
  CHECK(absl::IsUnavailable(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("array a1 at " + old.address()) &&
                                                 Catch::Contains("array a1 at " + serving.address()) &&
                                                 Catch::Contains("does not serve array a1 now"));
  CHECK(absl::IsUnavailable(array->CheckServing(kLong)));
  CHECK(ConnectTo({serving.address()})->CheckServing(kLong).message() ==
        "array a1 at " + serving.address() + ": " + std::string(kNotServing.message()));
  serving.SetServing(absl::OkStatus());
  CHECK(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
}

TEST_CASE_METHOD(TwoAgents, "an agent whose host hangs is passed over") {
  old.Stop();
  const MuteAgent mute(old.address());
  const auto array = ConnectToBoth();
  CHECK(array->volumes().GetCapacity().ok());
}

TEST_CASE_METHOD(TwoAgents, "a clock that is set back between two agents does not prolong a call") {
  absl::Notification end;
  std::optional<WallClockAhead> ahead;
  ahead.emplace(absl::Hours(1));
  AwaitAbseilsClock();
  old.Stop();
  old.Wrap([&](auto&) { return std::make_unique<ClockSettingAgent>([&] { ahead.reset(); }); });
  old.Start();
  serving.Stop();
  serving.Wrap([&](auto&) { return std::make_unique<SilentAgent>(end); });
  serving.Start();
  call_timeout = absl::Seconds(5);
  const auto array = ConnectToBoth();
  auto call = std::async(std::launch::async, [&] { return array->volumes().GetCapacity().status(); });
  const bool in_time = call.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  CHECK(in_time);
  end.Notify();  // so that it ends at last
  const absl::Status status = call.get();
  if (in_time) CHECK(absl::IsDeadlineExceeded(status));
  serving.Stop();  // a call may come in only now, and look for `end`
}

TEST_CASE_METHOD(TwoAgents, "one that takes a call and is silent is not asked first again") {
  absl::Notification end;
  old.Stop();
  old.Wrap([&](auto&) { return std::make_unique<SilentAgent>(end); });
  old.Start();
  call_timeout = absl::Seconds(1);
  const auto array = ConnectToBoth();
  CHECK(absl::IsDeadlineExceeded(array->volumes().GetCapacity().status()));
  CHECK(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
  end.Notify();
  old.Stop();  // waits for the call
}

TEST_CASE_METHOD(TwoAgents, "a node that waits for a volume goes on waiting at the next agent") {
  old.ShareArrays(serving);
  const auto array = ConnectToBoth();
  const VolumeId volume = MustCreate(*array);
  REQUIRE(array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  auto waiting = std::async(std::launch::async,
                            [&] { return array->grants().AcquireGrant(For(volume, kNodeB), kLong); });
  REQUIRE(Eventually([&] { return serving.Of().Waiting() == 1; }));
  old.Stop();
  REQUIRE(Eventually([&] { return serving.Of().Waiting() == 1; }));
  REQUIRE(array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, 0).ok());
  const auto grant = waiting.get();
  INFO(grant.status());
  REQUIRE(grant.ok());
  CHECK(grant->node == kNodeB);
}

TEST_CASE_METHOD(TwoAgents, "a host that comes back with an old copy of the pool is not the array again") {
  serving.SetIdentity(PoolIdentity{.lineage = "1f", .restored_at = 1000});
  copy_timeout = kLong;
  for (const bool old_first : {true, false}) {  // each as a controller that has just started
    const auto array = old_first ? ConnectToBoth() : ConnectTo({serving.address(), old.address()});
    const VolumeId volume = MustCreate(*array);
    CHECK(serving.Of().GetVolume(volume).ok());
    CHECK(absl::IsNotFound(old.Of().GetVolume(volume).status()));
  }
  const auto array = ConnectToBoth();
  const VolumeId volume = MustCreate(*array);
  serving.Stop();  // the old one is all there is, and was not asked to do anything
  CHECK(IsRefused(*array, old.address() + ": the pool there (never restored) is an older copy"));
  CHECK(absl::IsUnavailable(array->volumes().DeleteVolume(volume)));
  serving.Start();
  CHECK(Eventually([&] { return array->volumes().GetVolume(volume).ok(); }));
}

TEST_CASE_METHOD(TwoAgents, "the old copy is refused by its agent, which then does nothing") {
  const auto array = ConnectToBoth();
  serving.SetIdentity(PoolIdentity{.lineage = "1f", .restored_at = 1000});
  old.Stop();
  REQUIRE(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
  serving.Stop();
  old.Start();
  VolumeSpec spec;
  spec.name = "lost";
  spec.size_bytes = 1 << 20;
  CHECK(IsRefused(*array, "is an older copy"));
  CHECK(absl::IsUnavailable(array->volumes().CreateVolume(spec).status()));
  CHECK(old.Of().ListVolumes("", 0)->items.empty());
}

TEST_CASE_METHOD(
    TwoAgents, "a host that comes later has the newest copy, and is the array although the old one answers") {
  serving.SetIdentity(PoolIdentity{.lineage = "1f", .restored_at = 1000});
  serving.Stop();
  const auto array = ConnectToBoth(), direct = ConnectTo({serving.address()});
  CHECK(array->volumes().GetCapacity().ok());  // of the old one, which is all there is
  serving.Start();
  REQUIRE(Eventually([&] { return direct->volumes().GetCapacity().ok(); }));
  const VolumeId volume = MustCreate(*direct);
  CHECK(Eventually([&] { return array->volumes().GetVolume(volume).ok(); }));
}

TEST_CASE_METHOD(TwoAgents, "a pool made anew under the array's name is not believed") {
  const auto array = ConnectToBoth();
  const VolumeId volume = MustCreate(*array);
  old.Stop();
  serving.SetIdentity(PoolIdentity{.lineage = "2f", .restored_at = 1000});
  CHECK(IsRefused(*array, "another one than the array's"));
  // And not "not found", as if it were gone for good.
  CHECK(absl::IsUnavailable(array->volumes().GetVolume(volume).status()));
  CHECK(Connect(serving.Options(ControllerTls()))->volumes().GetCapacity().ok());  // a new controller
}

TEST_CASE_METHOD(TwoAgents, "an agent too old to know its copy is believed only where none is known") {
  serving.SetIdentity(std::nullopt);
  old.Stop();
  const auto array = ConnectToBoth();
  CHECK(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
  old.Start();
  serving.Stop();
  CHECK(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
  serving.Start();
  old.Stop();
  CHECK(IsRefused(*array, serving.address() + ": its agent is of an older version"));
}

TEST_CASE_METHOD(TwoAgents, "an address of another array's agent keeps no call from the array's own") {
  const TestAgent other(AgentTls(), "a2");
  serving.SetIdentity(PoolIdentity{.lineage = "2f"});
  serving.Stop();  // so the other one is asked first
  const auto array = ConnectTo({other.address(), serving.address()});
  const absl::Status refused = array->volumes().GetCapacity().status();
  CHECK(absl::IsUnavailable(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("array a1 at " + other.address() +
                                                             ": this is array a2, and the call is for a1"));
  serving.Start();
  CHECK(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
}

TEST_CASE("an array says which gateway serves it, and one without gateways, or of an older agent, nothing") {
  TwoAgents agents;
  const auto array = agents.ConnectToBoth();
  agents.old.SetServing(kNotServing);
  CHECK(array->AskGateway(kLong).value() == std::nullopt);
  GatewayState state = {.host = "storage-2.example",
                        .epoch = 7,
                        .before = "storage-1",
                        .change = GatewayChange::kTakeover,
                        .since = absl::FromUnixSeconds(1'800'000'000),
                        .served_for = absl::Seconds(3),
                        .phases = {{"silence", absl::Milliseconds(5100)}, {"targets", absl::Seconds(1)}}};
  agents.serving.SetGateway(state);
  agents.old.SetGateway(GatewayState{.host = "storage-1", .epoch = 6});
  CHECK(array->AskGateway(kLong).value() == state);
  // A name that is none would be a part of a metric.
  state.before = "a\"} 1\nx{y=\"";
  agents.serving.SetGateway(state);
  CHECK(array->AskGateway(kLong).value()->before.empty());
  agents.serving.SetServing(kNotServing);
  CHECK(absl::IsUnavailable(array->AskGateway(kLong).status()));
}

}  // namespace lunkeeper::testing
