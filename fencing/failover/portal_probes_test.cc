// Which portals of an array are connected to, and what an answer says.

#include "fencing/failover/portal_probes.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper::fencing {
namespace {

class FakeProber final : public Prober {
 public:
  void Probe(const std::string& address, uint16_t port, std::function<void(ProbeResult)> done) override {
    {
      const absl::MutexLock lock(&mutex_);
      probed_.push_back(address + ":" + std::to_string(port));
    }
    done(result);
  }
  std::vector<std::string> probed() {
    const absl::MutexLock lock(&mutex_);
    return probed_;
  }
  std::atomic<ProbeResult> result = ProbeResult::kAccepted;

 private:
  absl::Mutex mutex_;
  std::vector<std::string> probed_ ABSL_GUARDED_BY(mutex_);
};

const std::string kPortal = "127.0.0.1:3260";  // of the fake array

// The hub's workers use the probes, so it is made after them.
struct ProbesFixture {
  ProbesFixture() {
    VolumeSpec spec;
    spec.name = "v";
    spec.size_bytes = 1 << 20;
    volume = array->CreateVolume(spec)->id;
    hub.RefreshArrays();
  }
  void Grant() { REQUIRE(array->AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration()).ok()); }
  void ProbeAfter(Span time) { probes.ProbeArray({ArrayId("fake"), node}, start + time); }

  const Instant start = NowOn(RealExecutor());
  const NodeId node{"n1.i"};
  std::shared_ptr<FakeArray> array = std::make_shared<FakeArray>();
  VolumeId volume;
  std::unique_ptr<lunkeeper::Arrays> arrays = MakeOneArray("fake", array);
  FakeProber prober;
  std::atomic<int> answers = 0;
  PortalProbes probes{hub, &prober, [this](const ArrayId& id) { answers += id == ArrayId("fake") ? 1 : 0; }};
  ArrayHub hub{*arrays, [](const ArrayPoll&) {}, RealExecutor()};
};

}  // namespace

TEST_CASE("the portals of an array are those that its agent names for the node's grants") {
  ProbesFixture f;
  f.Grant();
  f.ProbeAfter({});
  CHECK(testing::Eventually([&] { return f.answers == 1; }));
  CHECK(f.prober.probed() == std::vector{kPortal});
}

TEST_CASE("known portals are probed while the agent does not answer") {
  ProbesFixture f;
  f.Grant();
  f.ProbeAfter({});
  REQUIRE(testing::Eventually([&] { return f.answers == 1; }));
  f.array->FailWith(absl::UnavailableError("away"));
  f.ProbeAfter(1_s);
  CHECK(f.answers == 2);
  f.ProbeAfter(60_s);
  CHECK(f.answers == 3);
}

TEST_CASE("the portals stay known when the node has no grant any more, as it is fenced") {
  ProbesFixture f;
  f.Grant();
  f.ProbeAfter({});
  REQUIRE(testing::Eventually([&] { return f.answers == 1; }));
  const auto grants = f.array->ListGrants({});
  REQUIRE(f.array->ReleaseGrant(f.volume, f.node, grants->front().owner, grants->front().generation).ok());
  f.ProbeAfter(30_s);  // asks the agent, too
  absl::SleepFor(absl::Milliseconds(200));
  f.ProbeAfter(31_s);
  CHECK(f.answers == 3);
}

TEST_CASE("a portal that does not accept says nothing") {
  ProbesFixture f;
  f.Grant();
  f.prober.result = GENERATE(ProbeResult::kRefused, ProbeResult::kUnanswered, ProbeResult::kNoRoute);
  f.ProbeAfter({});
  CHECK(testing::Eventually([&] { return f.prober.probed().size() == 1; }));
  CHECK(f.answers == 0);
}

}  // namespace lunkeeper::fencing
