// The view of who holds what, against an API server in memory; the test is the thread that failover has.

#include "fencing/failover/volume_lock_publisher.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/failover/details_board.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using kube::Json;
using kube::TextAt;

constexpr char kLocks[] = "/apis/lunkeeper.io/v1alpha1/volumelocks/";

VolumeId IdOf(int number) { return VolumeId(absl::StrFormat("a1-v%016x", number)); }

struct LocksRig {
  ~LocksRig() {
    locks.reset();
    RunJobs();
  }

  void Hold(const VolumeId& volume, const std::string& node, Generation generation,
            Access access = Access::kExclusive) {
    poll.view.array = ArrayId("a1");
    poll.view.holdings.push_back({volume, NodeId(node + ".00000000000000aa"), 0});
    poll.kinds.push_back({access, generation});
  }
  void Release() {
    poll = {};
    poll.view.array = ArrayId("a1");
  }
  // A pod with a claim that is bound to the volume.
  void Run(const std::string& name, const std::string& node, const VolumeId& volume, bool block = false) {
    const VolumeFacts bound{"db/data-" + name, volume, "", block};
    objects.OnVolume("pv-" + name, std::make_shared<const VolumeFacts>(bound));
    PodFacts pod;
    pod.node = NodeName(node);
    pod.claims = {bound.claim};
    objects.OnPod("db/" + name, std::make_shared<const PodFacts>(pod));
  }

  // Looks at the array again and again, each time a second later, until it is so.
  bool Comes(const std::function<bool()>& condition) {
    for (const absl::Time end = absl::Now() + absl::Seconds(100); absl::Now() < end;) {
      if (condition()) return true;
      RunJobs();
      locks->OnArrayPoll(poll, now += 1_s);
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }
  Json Lock(const VolumeId& volume) const { return api.Get(kLocks + volume.value()); }
  std::string Shown(const VolumeId& volume, const char* field) const {
    return TextAt(Lock(volume), {"status", field});
  }

  void Post(std::function<void()> job) {
    absl::MutexLock lock(&mutex);
    jobs.push_back(std::move(job));
  }
  void RunJobs() {
    std::vector<std::function<void()>> due;
    {
      absl::MutexLock lock(&mutex);
      due.swap(jobs);
    }
    if (locks != nullptr)
      for (const auto& job : due) job();
  }

  // A webhook holds each write.
  bool HoldCall(kube::Exchange& exchange) {
    if (!holds || exchange.method != "POST") return false;
    held = true;
    while (exchange.Hold(absl::Milliseconds(20))) {
    }
    return true;
  }

  std::atomic<bool> holds = false, held = false;
  FakeApi api{[](const std::string&) {}, [this](kube::Exchange& exchange) { return HoldCall(exchange); }};
  std::unique_ptr<kube::KubeClient> client = api.Client();
  Cluster cluster;
  ObjectCache objects{[this](auto what) {
    if (const auto* seen = std::get_if<PodSeen>(&what)) cluster.StoreObject(seen->pod);
    if (const auto* gone = std::get_if<PodGone>(&what)) cluster.Remove(gone->pod);
  }};
  absl::Mutex mutex;
  std::vector<std::function<void()>> jobs;
  std::atomic<bool> may_write = true;
  std::set<ArrayId> arrays = {ArrayId("a1"), ArrayId("a2")};
  DetailsBoard details;
  ArrayPoll poll;
  Instant now;
  std::unique_ptr<VolumeLockPublisher> locks = std::make_unique<VolumeLockPublisher>(
      *client,
      LockPublisherInputs{
          [this](auto job) { Post(std::move(job)); }, [this] { return may_write.load(); },
          [this](const ArrayId& array) { return arrays.contains(array); }, cluster, objects, RealExecutor(),
          [this](const NodeId& node, const VolumeId& volume) { return details.Find(node, volume); }});
};

}  // namespace

TEST_CASE("a volume's lock says who has it, and goes with the grant") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  rig.Hold(volume, "n1", 7);
  rig.Run("db-0", "n1", volume, true);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "pod") == "db/db-0"; }));
  CHECK(rig.Shown(volume, "volume") == "pv-db-0");
  CHECK(rig.Shown(volume, "claim") == "db/data-db-0");
  CHECK(rig.Shown(volume, "mode") == "Block");
  CHECK(rig.Shown(volume, "node") == "n1");
  CHECK(rig.Shown(volume, "access") == "exclusive");
  const Json holder = rig.Lock(volume)["status"]["holders"][0];
  CHECK(kube::NumberAt(holder, {"generation"}) == 7);
  CHECK(TextAt(holder, {"instance"}) == "00000000000000aa");
  rig.Release();
  CHECK(rig.Comes([&] { return rig.Lock(volume).is_null(); }));
}

TEST_CASE("a lock shows each holder's device, paths and mounts, as the node says") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  const NodeId node("n1.00000000000000aa");
  rig.Hold(volume, "n1", 7);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "node") == "n1"; }));
  CHECK(rig.Shown(volume, "device").empty());  // it has said nothing yet, or never does
  const DeviceDetail seen{.device = "/dev/loop3",
                          .paths = {{"10.0.0.5:3260", PathState::kConnected}},
                          .mounts = {"/staging", "/pods/x"}};
  rig.details.OnDetails(node, {volume}, {{volume, seen}}, Instant(10_s));
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "device") == "/dev/loop3"; }));
  const Json holder = rig.Lock(volume)["status"]["holders"][0];
  CHECK(TextAt(holder, {"device"}) == "/dev/loop3");
  CHECK((holder["paths"] == Json::parse(R"([{"portal": "10.0.0.5:3260", "state": "connected"}])")));
  CHECK((holder["mounts"] == Json::parse(R"(["/staging", "/pods/x"])")));
  DeviceDetail lost = seen;
  lost.paths[0].state = PathState::kLost;
  rig.details.OnDetails(node, {volume}, {{volume, lost}}, Instant(20_s));
  CHECK(rig.Comes(
      [&] { return TextAt(rig.Lock(volume)["status"]["holders"][0]["paths"][0], {"state"}) == "lost"; }));
  rig.details.OnDetails(node, {}, {}, Instant(30_s));
  CHECK(rig.Comes([&] { return rig.Shown(volume, "device").empty(); }));
}

TEST_CASE("what somebody does to a lock is put right, and since when it is so stays known") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  rig.Hold(volume, "n1", 7);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "node") == "n1"; }));
  const Json before = rig.Lock(volume)["status"];
  rig.api.Merge(kLocks + volume.value(), {{"status", {{"node", "n5"}, {"note", "mine"}}}});
  CHECK(rig.Comes([&] { return rig.Shown(volume, "node") == "n1"; }));
  absl::SleepFor(absl::Milliseconds(1100));  // so that a new time would be another
  rig.api.Remove(kLocks + volume.value());
  CHECK(rig.Comes([&] { return rig.Lock(volume)["status"] == before; }));
}

TEST_CASE("a lock that is right is left alone") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  rig.Hold(volume, "n1", 7);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "node") == "n1"; }));
  const Instant seen = rig.now;
  CHECK(rig.Comes([&] { return rig.now > seen + 50_s; }));
  CHECK(rig.api.writes().size() == 1);
}

TEST_CASE("a shared volume's lock names all its holders") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  rig.Hold(volume, "n2", 9, Access::kReadOnly);
  rig.Hold(volume, "n1", 7, Access::kReadOnly);
  rig.Run("reader", "n2", volume);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "node") == "n1,n2"; }));
  CHECK(rig.Shown(volume, "pod") == "db/reader");
  CHECK(rig.Shown(volume, "access") == "read-only");
  CHECK(rig.Lock(volume)["status"]["holders"][0]["pods"].empty());
}

TEST_CASE("failover's own writes go first, and of another array nothing is taken away") {
  LocksRig rig;
  rig.api.Put(absl::StrCat(kLocks, "a2-v0000000000000001"), {{"status", {{"node", "n1"}}}});
  rig.Hold(IdOf(1), "n1", 7);
  rig.may_write = false;
  const Instant begun = rig.now;
  REQUIRE(rig.Comes([&] { return rig.now > begun + 50_s; }));
  CHECK(rig.api.writes().empty());
  rig.may_write = true;
  REQUIRE(rig.Comes([&] { return !rig.Lock(IdOf(1)).is_null(); }));
  CHECK_FALSE(rig.Lock(VolumeId("a2-v0000000000000001")).is_null());
}

TEST_CASE("the locks of an array that is taken out go") {
  LocksRig rig;
  const VolumeId there("a2-v0000000000000001"), gone("a3-v0000000000000001");
  for (const VolumeId& volume : {there, gone})
    rig.api.Put(kLocks + volume.value(), {{"status", {{"node", "n1"}}}});
  rig.Hold(IdOf(1), "n1", 7);
  CHECK(rig.Comes([&] { return rig.Lock(gone).is_null(); }));
  CHECK_FALSE(rig.Lock(there).is_null());
  rig.arrays.erase(ArrayId("a2"));
  CHECK(rig.Comes([&] { return rig.Lock(there).is_null(); }));
  CHECK(rig.Shown(IdOf(1), "node") == "n1");
}

TEST_CASE("many volumes are gone round, so many at a time") {
  LocksRig rig;
  constexpr int kMany = 1100;  // more than one sweep checks
  for (int number = 0; number < kMany; ++number)
    rig.Hold(IdOf(number), "n1", static_cast<Generation>(number) + 1);
  REQUIRE(rig.Comes([&] { return rig.api.CountWrites("POST ") == kMany; }));
  CHECK(rig.now >= Instant(kMany / 100 * 1_s));  // not all at once
  rig.api.Merge(kLocks + IdOf(kMany - 1).value(), {{"status", {{"node", "n5"}}}});
  CHECK(rig.Comes([&] { return rig.Shown(IdOf(kMany - 1), "node") == "n1"; }));
  rig.Release();
  CHECK(rig.Comes([&] { return rig.api.CountWrites("DELETE ") == kMany; }));
}

TEST_CASE("locks that cannot be written hold up no others") {
  LocksRig rig;
  constexpr int kRefused = 250;  // more than are written at a time
  rig.api.Refuse(absl::StrCat("PATCH ", kLocks, "a1-v00000000000000"), 1'000'000);
  for (int number = 0; number < kRefused; ++number) {
    rig.Hold(IdOf(number), "n1", static_cast<Generation>(number) + 1);
    rig.api.Put(kLocks + IdOf(number).value(), {{"status", {{"node", "n5"}}}});
  }
  rig.Hold(IdOf(300), "n1", 301);
  CHECK(rig.Comes([&] { return rig.Shown(IdOf(300), "node") == "n1"; }));
  CHECK(rig.Shown(IdOf(0), "node") == "n5");
}

TEST_CASE("a pod that comes to a volume is named in its lock") {
  LocksRig rig;
  const VolumeId volume = IdOf(1);
  rig.Hold(volume, "n1", 7);
  REQUIRE(rig.Comes([&] { return rig.Shown(volume, "node") == "n1"; }));
  const Instant seen = rig.now;
  REQUIRE(rig.Comes([&] { return rig.now > seen + 50_s; }));  // found to be right, many times
  rig.Run("db-0", "n1", volume);
  CHECK(rig.Comes([&] { return rig.Shown(volume, "pod") == "db/db-0"; }));
}

TEST_CASE("a publisher that ends does not wait for a write that a webhook holds") {
  LocksRig rig;
  rig.holds = true;
  rig.Hold(IdOf(1), "n1", 7);
  REQUIRE(rig.Comes([&] { return rig.held.load(); }));
  const absl::Time began = absl::Now();
  rig.locks.reset();
  CHECK(absl::Now() - began < absl::Seconds(2));
}

}  // namespace lunkeeper::fencing
