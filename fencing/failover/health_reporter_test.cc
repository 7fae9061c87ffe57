#include "fencing/failover/health_reporter.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fencing/core/core.h"

namespace lunkeeper::fencing {
namespace {

const VolumeId kIll("a1-v0000000000000001"), kWell("a1-v0000000000000002");

struct FakeFullPools final : FullPools {
  void SetWanted(bool now) override { wanted = now; }
  std::shared_ptr<const VolumeSet> ListVolumes() override {
    return std::make_shared<const VolumeSet>(wanted ? volumes : VolumeSet());
  }
  VolumeSet volumes;
  bool wanted = false;
};

// A core that is fed what the test says, a second at a time, and a claim with a pod on n1.
struct HealthRig {
  HealthRig() {
    Bind("pv", "db/data", kIll, "c1");
    PodFacts pod;
    pod.uid = Uid("p1");
    pod.node = NodeName("n1");
    pod.claims = {"db/data"};
    objects.OnPod("db/db-0", std::make_shared<const PodFacts>(pod));
    Feed(ArrayConfigured{ArrayId("a1")});
    present = {kIll, kWell};
  }

  void Bind(const std::string& name, const std::string& claim, const VolumeId& volume, const char* uid) {
    VolumeFacts facts;
    facts.claim = claim;
    facts.volume = volume;
    facts.claim_uid = Uid(uid);
    objects.OnVolume(name, std::make_shared<const VolumeFacts>(facts));
  }
  void Feed(decltype(Event::what) what) { core.Step({now, std::move(what)}); }
  // Heartbeats of n1 and, while it answers, polls of the array, for so long.
  void Wait(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now += 1_s;
      Heartbeat heartbeat;
      heartbeat.node = NodeId("n1.00000000000000aa");
      heartbeat.boot = "boot";
      heartbeat.sequence = ++sequence;
      heartbeat.failing = failing;
      heartbeat.failed = failed;
      heartbeat.closed = closed;
      heartbeat.present = present;
      Feed(heartbeat);
      ArrayView view;
      view.array = ArrayId("a1");
      view.asked = now;
      view.fences = fences;
      if (array_answers) Feed(view);
      Feed(Tick{});
      health.ReportChanges();
    }
  }
  // What was said since the last call: "Pod db-0 Fenced".
  std::string Said() {
    std::string said = absl::StrJoin(events, ", ", [](std::string* out, const kube::ObjectEvent& event) {
      absl::StrAppend(out, event.kind == "Pod" ? "Pod " : "Claim ", event.name, " ", event.reason);
    });
    events.clear();
    return said;
  }

  Instant now;
  uint64_t sequence = 0;
  VolumeSet failing, failed, closed, present;
  std::vector<ArrayFence> fences;
  bool array_answers = true;
  Core core{Settings(), "replica-1"};
  ObjectCache objects{[this](auto what) { Feed(std::move(what)); }};
  std::vector<kube::ObjectEvent> events;
  FakeFullPools* pools = new FakeFullPools;
  HealthReporter health{core.state(), objects, std::unique_ptr<FullPools>(pools),
                        [this](auto event) { events.push_back(std::move(event)); }};
};

}  // namespace

TEST_CASE("a volume that fails for good is said once on its claim and its pod, and again when it is well") {
  HealthRig rig;
  rig.Wait(3);
  CHECK(rig.Said().empty());
  rig.failing = rig.failed = {kIll};
  rig.Wait(1);
  REQUIRE(rig.events.size() == 2);
  CHECK(rig.events[0].uid == "c1");
  CHECK(rig.events[0].space == "db");
  CHECK(rig.events[0].event_kind == kube::EventKind::kWarning);
  CHECK(rig.events[1].uid == "p1");
  CHECK_THAT(rig.events[1].note, Catch::Contains("on node n1"));
  CHECK(rig.Said() == "Claim data DeviceFailed, Pod db-0 DeviceFailed");
  rig.Wait(300);
  CHECK(rig.Said().empty());
  rig.failing = rig.failed = rig.present = {};
  rig.Wait(30);  // its device is gone, which says nothing of the volume
  CHECK(rig.Said().empty());
  rig.present = {kIll};
  rig.Wait(1);
  CHECK(rig.events.at(0).event_kind == kube::EventKind::kNormal);
  CHECK(rig.Said() == "Claim data VolumeWell, Pod db-0 VolumeWell");
  rig.Wait(300);
  CHECK(rig.Said().empty());
}

TEST_CASE("I/O that waits is said when it has waited for long, and a fence is said to be one") {
  HealthRig rig;
  rig.failing = {kIll};
  rig.Wait(10);
  CHECK(rig.Said().empty());
  rig.Wait(2);
  CHECK(rig.Said() == "Claim data Reconnecting, Pod db-0 Reconnecting");
  rig.failed = {kIll};
  ArrayFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  fence.generation = 7;
  fence.volumes = {kIll};
  rig.fences = {fence};
  rig.Wait(1);
  CHECK(rig.Said() == "Claim data Fenced, Pod db-0 Fenced");
}

TEST_CASE("a file system that closed itself is said at once, and a device that failed before it") {
  HealthRig rig;
  rig.closed = {kIll};
  rig.Wait(1);
  CHECK_THAT(rig.events.at(1).note, Catch::Contains("on node n1: the file system met an error"));
  CHECK(rig.Said() == "Claim data FilesystemReadOnly, Pod db-0 FilesystemReadOnly");
  rig.failing = rig.failed = {kIll};
  rig.Wait(1);
  CHECK(rig.Said() == "Claim data DeviceFailed, Pod db-0 DeviceFailed");
  rig.failing = rig.failed = rig.closed = {};
  rig.Wait(12);
  CHECK(rig.Said() == "Claim data VolumeWell, Pod db-0 VolumeWell");
}

TEST_CASE("a volume whose health comes and goes is said to be ill at most once a minute") {
  HealthRig rig;
  int ill = 0;
  for (int round = 0; round < 12; ++round) {
    rig.failing = rig.failed = {kIll};
    rig.Wait(5);
    rig.failing = rig.failed = {};
    rig.Wait(12);
    const std::string said = rig.Said();
    ill += static_cast<int>(said.find("Claim data DeviceFailed") != std::string::npos);
  }
  CHECK(ill >= 2);
  CHECK(ill <= 4);
}

TEST_CASE("an array that is away is said on the claims of volumes that are used, after a while") {
  HealthRig rig;
  rig.Wait(5);
  rig.array_answers = false;
  rig.Wait(25);
  CHECK(rig.Said().empty());
  rig.Wait(30);
  CHECK(rig.Said() == "Claim data ArrayNotAnswering, Pod db-0 ArrayNotAnswering");
  rig.array_answers = true;
  rig.Wait(20);
  CHECK(rig.Said() == "Claim data VolumeWell, Pod db-0 VolumeWell");
}

TEST_CASE("a full pool is said on the claims of its volumes, used or not, and so is its end") {
  HealthRig rig;
  const VolumeId unused("a1-v0000000000000003");
  rig.Bind("spare", "db/spare", unused, "c2");
  rig.pools->volumes = {kIll, unused};
  rig.Wait(1);
  CHECK_THAT(rig.events.at(0).note, Catch::Contains("the pool of array a1 is full"));
  CHECK(rig.Said() == "Claim data PoolFull, Pod db-0 PoolFull, Claim spare PoolFull");
  rig.Wait(300);
  CHECK(rig.Said().empty());
  rig.closed = {kIll};  // what became of a write
  rig.Wait(1);
  CHECK(rig.Said() == "Claim data FilesystemReadOnly, Pod db-0 FilesystemReadOnly");
  rig.pools->volumes = {};
  rig.Wait(12);
  CHECK(rig.Said() == "Claim spare VolumeWell");
  CHECK(rig.pools->wanted);
  rig.health.StopReporting();
  CHECK_FALSE(rig.pools->wanted);
}

TEST_CASE("a full pool of many volumes is said slowly, and what fails for good does not wait for that") {
  HealthRig rig;
  for (int i = 0; i < 100; ++i) {
    const VolumeId volume(absl::StrCat("a0-v00000000000001", i + 10));
    const std::string name = absl::StrCat("more", i);
    rig.Bind(name, "db/" + name, volume, "c");
    rig.pools->volumes.insert(volume);
  }
  rig.Wait(1);
  CHECK(rig.events.size() == 5);
  rig.Said();
  rig.failing = rig.failed = {kIll};  // the last in order
  rig.Wait(1);
  CHECK_THAT(rig.Said(), Catch::Contains("Claim data DeviceFailed"));
  rig.Wait(60);
  CHECK(rig.events.size() == 90);
}

TEST_CASE("of many volumes some are said each second until all are, and a new leader says them again") {
  HealthRig rig;
  for (int i = 0; i < 50; ++i) {
    const VolumeId volume(absl::StrCat("a1-v00000000000001", i + 10));
    const std::string name = absl::StrCat("more", i);
    rig.Bind(name, "db/" + name, volume, "c");
    rig.failed.insert(volume);
  }
  rig.failing = rig.present = rig.failed;
  rig.Wait(1);
  CHECK(rig.events.size() == 20);
  rig.Wait(2);
  CHECK(rig.events.size() == 50);
  rig.Wait(60);
  CHECK(rig.events.size() == 50);
  rig.health.StopReporting();
  rig.Wait(3);
  CHECK(rig.events.size() == 100);
}

}  // namespace lunkeeper::fencing
