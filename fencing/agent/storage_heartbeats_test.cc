// A node's heartbeats to a real array.

#include "fencing/agent/storage_heartbeats.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/testing/wall_clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper {
namespace {

using testing::ArrayFixture;
using testing::Eventually;
using testing::TgtdProcess;

constexpr absl::Duration kLong = absl::Seconds(30);

// A node that sends heartbeats twenty times a second, to one array.
struct StorageHeartbeatsFixture : ArrayFixture {
  StorageHeartbeatsFixture() {
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
  }
  void Start() {
    heartbeats = StartStorageHeartbeats(
        {.node = node,
         .arrays = {fencing::ArrayId("a1")},
         .every = absl::Milliseconds(50),
         .answer_timeout = absl::Seconds(2),
         .log_in = LogInByIscsi},
        [this](const fencing::ArrayId&, absl::Time) { return Ask(); },
        [this](const fencing::ArrayId&, const fencing::ArrayFence& fence) {
          absl::MutexLock lock(&mutex);
          told.push_back(fence);
        },
        [this](const fencing::ArrayId& to) { landed += to == fencing::ArrayId("a1"); });
  }
  absl::StatusOr<Connection> Ask() {
    ++asked;
    if (!controllers) return absl::UnavailableError("no controller answers");
    absl::MutexLock lock(&array_mutex);
    absl::StatusOr<Connection> access = array->fences().OpenHeartbeatLun({node, signs});
    if (access.ok() && !dead_portal.empty())
      access->other_portals = {std::exchange(access->portal, dead_portal)};
    if (access.ok() && asked <= stale_answers) access->chap.secret = "of-another-time.";
    return access;
  }
  // The array has seen a heartbeat that came after this call.
  bool Land() {
    const uint64_t before = Last();
    return Eventually([&] { return Last() > before; }, kLong);
  }
  uint64_t Last() {
    const auto seen = array->fences().ListHeartbeats();
    return seen.ok() && !seen->empty() ? seen->front().sequence : 0;
  }

  const NodeId node{"node-a.1"};
  std::atomic<bool> controllers = true;
  std::atomic<int> stale_answers = 0;
  std::atomic<bool> signs = true;  // false: as before an older array
  std::atomic<int> asked = 0;
  std::atomic<int> landed = 0;
  std::string dead_portal;
  absl::Mutex array_mutex;  // held by who opens the array anew
  absl::Mutex mutex;
  std::vector<fencing::ArrayFence> told;
  std::unique_ptr<Array> array;
  absl::Duration Age() const { return heartbeats->Ages().begin()->second; }

  std::unique_ptr<StorageHeartbeatSender> heartbeats;  // last: its threads use the others
};

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "heartbeats land on the array, one after another, and the node knows that they do") {
  Start();
  REQUIRE(Land());
  REQUIRE(Land());
  CHECK(array->fences().ListHeartbeats()->front().node == node);
  CHECK(Eventually([&] { return Age() < absl::Milliseconds(200); }, kLong));
  CHECK(asked == 1);
  CHECK(landed >= 2);
}

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "a node that is cut off from the controllers is heard by a tgtd that was started again") {
  Start();
  REQUIRE(Land());
  controllers = false;
  REQUIRE(::kill(TgtdProcess(options.control_port), SIGKILL) == 0);
  CHECK(Land());
  CHECK(Land());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "heartbeats that did not land are tried again soon by a node whose clock was set back") {
  controllers = false;
  {
    const testing::WallClockAhead ahead(absl::Hours(1));
    Start();
    const absl::Time began = absl::Now();
    // The first attempt is over by then; the next one follows half a second after it.
    CHECK(Eventually([&] { return asked >= 1 && absl::Now() - began > absl::Milliseconds(200); }, kLong));
  }
  controllers = true;
  CHECK(Land());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "heartbeats land by another portal where the first does not answer") {
  dead_portal = "127.0.0.1:1";
  Start();
  CHECK(Land());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "a node asks again how to reach an array whose portal has changed") {
  Start();
  REQUIRE(Land());
  options.portals = {absl::StrCat("127.0.0.1:", testing::FreePort())};
  {
    absl::MutexLock lock(&array_mutex);
    array.reset();
    const pid_t tgtd = TgtdProcess(options.control_port);
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
    ::kill(tgtd, SIGKILL);
  }
  CHECK(Eventually([&] { return asked > 1; }, absl::Minutes(2)));
  CHECK(Land());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture, "a node that is fenced hears of it from the array, once") {
  Start();
  REQUIRE(Land());
  const auto term = array->fences().BeginTerm("test");
  const auto fence = array->fences().FenceNode(*term, {node, {VolumeId("a1-v1"), VolumeId("a1-v2")}});
  REQUIRE(fence.ok());
  CHECK(Eventually(
      [&] {
        absl::MutexLock lock(&mutex);
        return !told.empty();
      },
      kLong));
  REQUIRE(Land());
  REQUIRE(Land());
  absl::MutexLock lock(&mutex);
  REQUIRE(told.size() == 1);
  CHECK(told[0].node == node);
  CHECK(told[0].generation == fence->generation);
  CHECK(told[0].volumes == fencing::VolumeSet{VolumeId("a1-v1"), VolumeId("a1-v2")});
}

TEST_CASE_METHOD(StorageHeartbeatsFixture, "a notice that the array did not sign is ignored and counted") {
  Start();
  REQUIRE(Land());
  // What the array writes only when something of it changes.
  const std::string luns = options.pool_dir + "/heartbeat_luns/";
  const auto forge = [&](const std::string& notice) {
    for (const auto& file : std::filesystem::directory_iterator(luns)) {
      std::fstream out(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(kNoteBlock * kSectorBytes);
      out << notice;
    }
  };
  const FenceNotice everything{.generation = 1u << 30, .volumes = {VolumeId("a1-v1")}};
  forge(WriteFenceNotice(everything));
  REQUIRE(Eventually([&] { return heartbeats->ForgedNotices() == 1; }, kLong));
  forge(WriteFenceNotice(everything, "another key"));
  REQUIRE(Eventually([&] { return heartbeats->ForgedNotices() == 2; }, kLong));
  REQUIRE(Land());
  absl::MutexLock lock(&mutex);
  CHECK(told.empty());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture, "where the array gives no key a notice is believed as it is") {
  signs = false;
  Start();
  REQUIRE(Land());
  const auto term = array->fences().BeginTerm("test");
  REQUIRE(array->fences().FenceNode(*term, {node, {VolumeId("a1-v1")}}).ok());
  CHECK(Eventually(
      [&] {
        absl::MutexLock lock(&mutex);
        return told.size() == 1;
      },
      kLong));
  CHECK(heartbeats->ForgedNotices() == 0);
}

TEST_CASE_METHOD(StorageHeartbeatsFixture,
                 "a node that its heartbeat LUN does not let in asks for it again") {
  stale_answers = 2;
  Start();
  CHECK(Land());
  CHECK(asked == 3);
}

TEST_CASE_METHOD(StorageHeartbeatsFixture, "controllers that do not answer are asked again") {
  controllers = false;
  Start();
  REQUIRE(Eventually([&] { return asked >= 2; }, kLong));
  CHECK(Age() > absl::ZeroDuration());
  controllers = true;
  CHECK(Land());
}

TEST_CASE_METHOD(StorageHeartbeatsFixture, "a node stops in time though its array hangs") {
  Start();
  REQUIRE(Land());
  const pid_t tgtd = TgtdProcess(options.control_port);
  REQUIRE(::kill(tgtd, SIGSTOP) == 0);
  CHECK(Eventually([&] { return Age() > absl::Seconds(1); }, kLong));
  const absl::Time began = absl::Now();
  heartbeats.reset();
  CHECK(absl::Now() - began < absl::Seconds(20));
  REQUIRE(::kill(tgtd, SIGCONT) == 0);
}

}  // namespace
}  // namespace lunkeeper
