// A growth of a volume that a node uses, when tgtd, the image or a fence comes in its way.

#include <catch2/catch.hpp>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/held_at.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1");
constexpr uint64_t kSmall = 16 << 20, kLarge = 32 << 20;

// A volume that node-a has, and a growth of it that stands still at a fail point.
struct HeldGrowth {
  explicit HeldGrowth(const std::string& point) : held(point), array(std::make_unique<ClusterFixture>()) {
    volume = array->Make("v");
    connection = array->Acquire(volume, kA).value().connection;
    held.Arm();
    thread = std::jthread([this] { grown = array->array->volumes().ExpandVolume(volume, kLarge).status(); });
    REQUIRE(Eventually([this] { return held.IsReached(); }));
  }
  absl::Status End() {
    held.LetGo();
    thread.join();
    return grown;
  }
  // As long as it takes to notice that it is wrong.
  bool HasToWait() {
    for (int i = 0; i < 30; ++i) {
      const auto login = PlainInitiator::Login(connection);
      if (login.ok() || absl::StrContains(login.status().message(), "not found")) return false;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return true;
  }

  HeldAt held;
  std::unique_ptr<ClusterFixture> array;
  VolumeId volume;
  Connection connection;
  absl::Status grown;
  std::jthread thread;
};

TEST_CASE("a growth whose image tgtd cannot open anew is an error, and its node is told to wait") {
  HeldGrowth growth("array.target.paused");
  const std::string path = growth.array->options.pool_dir + "/volumes/" + growth.volume.value();
  const std::string away = growth.array->directory.path() + "/away";
  std::filesystem::rename(path, away);
  CHECK_FALSE(growth.End().ok());
  CHECK(growth.HasToWait());
  VolumeStore& volumes = growth.array->array->volumes();
  CHECK(volumes.GetVolume(growth.volume)->spec.size_bytes == kSmall);
  const bool over_a_restart_of_the_agent = GENERATE(false, true);
  if (over_a_restart_of_the_agent) {
    growth.array->array.reset();
    REQUIRE(growth.array->Open().ok());
    growth.array->array = growth.array->Cluster();
    CHECK(growth.HasToWait());
  }
  std::filesystem::rename(away, path);
  CHECK(Eventually([&] {
    const auto initiator = PlainInitiator::Login(growth.connection);
    return initiator.ok() && (*initiator)->Write(0, 'x') && (*initiator)->SizeBytes() == kLarge;
  }));
  const auto again = growth.array->array->volumes().ExpandVolume(growth.volume, kLarge);
  REQUIRE(again.status() == absl::OkStatus());
  CHECK(again->spec.size_bytes == kLarge);
}

// What a growth cut at its end is no sign that a release later on finds sessions that tgtd never ends.
TEST_CASE("a session that a growth cuts leaves no target behind when the volume is released later") {
  HeldGrowth growth("array.target.opened");
  const auto early = PlainInitiator::Login(growth.connection);
  REQUIRE(early.status() == absl::OkStatus());
  REQUIRE(growth.End() == absl::OkStatus());
  const auto later = PlainInitiator::Login(growth.connection);
  REQUIRE(later.status() == absl::OkStatus());
  absl::SleepFor(absl::Milliseconds(1100));  // longer than a session without a command takes to end
  REQUIRE(growth.array->Release(growth.volume, kA) == absl::OkStatus());
  CHECK(TgtClient(growth.array->options.control_port).ListTargets()->size() == 1);  // the one of nobody
}

// A sync of all that is dirty takes long on a slow disk.
TEST_CASE("a fence does not wait for a growth that has not come to tgtd yet") {
  HeldGrowth growth("array.expand.file_grown");
  FenceControl& fences = growth.array->array->fences();
  const auto term = fences.BeginTerm("leader");
  const absl::Time asked = absl::Now();
  CHECK(fences.FenceNode(*term, {kA, {growth.volume}}).status() == absl::OkStatus());
  CHECK(absl::Now() - asked < absl::Seconds(5));
  CHECK(growth.End() == absl::OkStatus());
}

}  // namespace
}  // namespace lunkeeper::testing
