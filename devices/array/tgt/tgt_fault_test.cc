// What must hold when things die, lie or hurry at the wrong moment.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/slow_writes.h"
#include "devices/array/tgt/testing/with_one_silent.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1");
constexpr int kBlocks = 64;

GrantRequest For(const VolumeId& volume, const NodeId& node) {
  return {.volume = volume, .node = node, .access = Access::kExclusive, .owner = GrantOwner::kNode};
}

// A volume that node-a has, with a session.
struct UsedVolume {
  explicit UsedVolume(Array& array) {
    id = array.volumes().CreateVolume(Spec("v", 16)).value().id;
    connection = array.grants().AcquireGrant(For(id, kA), absl::ZeroDuration()).value().connection;
    initiator = PlainInitiator::Login(connection).value();
  }
  VolumeId id;
  Connection connection;
  std::unique_ptr<PlainInitiator> initiator;
};

// A node that does not know that it is dead: writes with a deep queue and logs in again without end.
class Zombie {
 public:
  explicit Zombie(Connection connection) : connection_(std::move(connection)), thread_([this] { Run(); }) {}
  ~Zombie() {
    stop_ = true;
    thread_.join();
  }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  static void Done(iscsi_context*, int status, void* data, void* self) {
    auto* zombie = static_cast<Zombie*>(self);
    --zombie->in_flight_;
    if (status == SCSI_STATUS_GOOD) ++zombie->acknowledged_;
    if (data != nullptr) scsi_free_scsi_task(static_cast<scsi_task*>(data));
  }
  static void LoggedIn(iscsi_context*, int status, void*, void* self) {
    static_cast<Zombie*>(self)->logged_in_ = status == SCSI_STATUS_GOOD;
  }
  void Run() {
    ::signal(SIGPIPE, SIG_IGN);
    while (!stop_) {
      iscsi_context* context = iscsi_create_context(connection_.initiator.value().c_str());
      iscsi_set_noautoreconnect(context, 1);
      iscsi_set_targetname(context, connection_.target.value().c_str());
      iscsi_set_session_type(context, ISCSI_SESSION_NORMAL);
      iscsi_set_initiator_username_pwd(context, connection_.chap.user.c_str(),
                                       connection_.chap.secret.c_str());
      logged_in_ = false;
      if (iscsi_full_connect_async(context, connection_.portal.c_str(), 1, LoggedIn, this) == 0)
        Session(context);
      iscsi_destroy_context(context);
    }
  }
  void Session(iscsi_context* context) {
    in_flight_ = 0;
    std::memset(data_, ++fill_, sizeof(data_));
    while (!stop_) {
      for (; logged_in_ && in_flight_ < 32; ++in_flight_) {
        const uint64_t block = next_++ % kBlocks;
        if (iscsi_write16_task(context, 1, block, data_, sizeof(data_), 512, 0, 0, 0, 0, 0, Done, this) ==
            nullptr)
          return;
      }
      pollfd fd = {.fd = iscsi_get_fd(context),
                   .events = static_cast<short>(iscsi_which_events(context)),
                   .revents = 0};
      if (::poll(&fd, 1, 100) < 0 || iscsi_service(context, fd.revents) != 0) return;
    }
  }

  const Connection connection_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> acknowledged_{0};
  bool logged_in_ = false;
  int in_flight_ = 0;
  uint64_t next_ = 0;
  unsigned char fill_ = 0;
  unsigned char data_[512] = {};
  std::thread thread_;
};

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string data(kBlocks * 512, '\0');
  file.read(data.data(), static_cast<std::streamsize>(data.size()));
  return data;
}

TEST_CASE("once Fence has returned no write of a zombie reaches the medium") {
  const int delay_ms = GENERATE(0, 300);
  ArrayFixture fixture;
  SlowWrites slow(fixture);
  REQUIRE(fixture.Open().ok());
  slow.Set(delay_ms);
  const auto array = fixture.Cluster();
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  REQUIRE(volume.ok());
  const std::string path = fixture.options.pool_dir + "/volumes/" + volume->id.value();
  const auto term = array->fences().BeginTerm("leader");
  for (int round = 0; round < (delay_ms == 0 ? 20 : 5); ++round) {
    const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    Zombie zombie(grant->connection);
    REQUIRE(Eventually(
        [&] { return zombie.acknowledged() > static_cast<uint64_t>(round % 5) * (delay_ms == 0 ? 50 : 2); }));
    const auto fence = array->fences().FenceNode(*term, {kA, {volume->id}});
    const std::string after_fence = Contents(path);
    REQUIRE(fence.status() == absl::OkStatus());
    const uint64_t acknowledged = zombie.acknowledged();
    const bool changed = Eventually([&] { return Contents(path) != after_fence; },
                                    absl::Milliseconds(delay_ms == 0 ? 50 : 700));
    CHECK_FALSE(changed);
    CHECK(zombie.acknowledged() <= acknowledged + 32);
    REQUIRE(array->fences().UnfenceNode(*term, kA, fence->generation).ok());
  }
}

TEST_CASE("a Fence that cannot be finished in time says so, and goes on by itself") {
  ArrayFixture fixture;
  SlowWrites slow(fixture);
  fixture.options.drain_timeout = absl::Milliseconds(100);
  REQUIRE(fixture.Open().ok());
  const auto array = fixture.Cluster();
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  REQUIRE(grant.ok());
  slow.Set(1500);
  const Zombie zombie(grant->connection);
  REQUIRE(
      Eventually([&] { return array->grants().ListSessions()->size() == 1 && zombie.acknowledged() > 0; }));
  const auto term = array->fences().BeginTerm("leader");
  CHECK(absl::IsDeadlineExceeded(array->fences().FenceNode(*term, {kA, {volume->id}}).status()));
  CHECK(array->grants().ListGrants({})->size() == 1);
  CHECK(absl::IsFailedPrecondition(
      array->grants().AcquireGrant(For(volume->id, kB), absl::ZeroDuration()).status()));
  slow.Set(0);
  CHECK(array->grants().AcquireGrant(For(volume->id, kB), absl::Seconds(20)).status() == absl::OkStatus());
  CHECK(array->fences().FenceNode(*term, {kA, {volume->id}}).ok());
}

TEST_CASE(
    "tgtd has the I/O threads it is told to have, or half as many as there are processors, up to four") {
  const int told = GENERATE(0, 3);
  ArrayFixture fixture;
  fixture.options.tgtd_io_threads = told;
  REQUIRE(fixture.Open().ok());
  std::ifstream file(absl::StrCat("/proc/", TgtdProcess(fixture.options.control_port), "/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  const auto option = std::find(words.begin(), words.end(), "-t");
  REQUIRE(words.end() - option >= 2);
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int expected = told > 0 ? told : processors < 4 ? 1 : processors < 8 ? processors / 2 : 4;
  CHECK(option[1] == std::to_string(expected));
}

// tgtd closes a management connection that ended without a request only if the latest call that failed there
// did so for another reason than EAGAIN, and turns round and round otherwise.
TEST_CASE("asking who tgtd is leaves it no connection to turn on for ever") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  const auto array = fixture.Cluster();
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  REQUIRE(grant.ok());
  const Zombie busy(grant->connection);
  REQUIRE(Eventually([&] { return busy.acknowledged() > 0; }));
  const pid_t tgtd = TgtdProcess(fixture.options.control_port);
  REQUIRE(tgtd > 0);
  const auto files = [tgtd] {
    const std::filesystem::directory_iterator all(absl::StrCat("/proc/", tgtd, "/fd"));
    return std::distance(begin(all), end(all));
  };
  const auto before = files();
  for (int i = 0; i < 50; ++i) REQUIRE(TgtdProcess(fixture.options.control_port) == tgtd);
  CHECK(Eventually([&] { return files() <= before; }));
}

TEST_CASE("tgtd dies: it is back at once, and nobody is ever told that his target is unknown") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  const auto array = fixture.Cluster();
  std::vector<Grant> grants;
  for (int i = 0; i < 20; ++i) {
    const auto volume = array->volumes().CreateVolume(Spec(absl::StrCat("v", i), 16));
    const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
    REQUIRE(grant.ok());
    grants.push_back(*grant);
  }
  const auto released = array->volumes().CreateVolume(Spec("released", 16));
  const auto old = array->grants().AcquireGrant(For(released->id, kA), absl::ZeroDuration());
  REQUIRE(array->grants().ReleaseGrant(released->id, kA, GrantOwner::kNode, kAnyGeneration).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0}, good{0};
  std::vector<std::thread> nodes;
  for (const size_t which : {0, 19}) {
    nodes.emplace_back([&, which] {
      while (!stop) {
        const auto login = PlainInitiator::Login(grants[which].connection);
        good += login.ok() ? 1 : 0;
        refused += absl::IsPermissionDenied(login.status()) &&
                   absl::StrContains(login.status().message(), "not found");
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    const pid_t pid = TgtdProcess(fixture.options.control_port);
    REQUIRE(pid > 0);
    ::kill(pid, SIGKILL);
    const absl::Time died = absl::Now();
    const int before = good;
    REQUIRE(Eventually([&] { return good > before + 2; }));
    CHECK(absl::Now() - died < absl::Seconds(2));
    CHECK(TgtdProcess(fixture.options.control_port) != pid);
  }
  stop = true;
  for (std::thread& node : nodes) node.join();
  CHECK(refused == 0);
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(old->connection).status()));
  CHECK(array->grants().AcquireGrant(For(released->id, kB), absl::Seconds(10)).ok());
}

TEST_CASE("the program ends and comes back: sessions go on, and it releases what they hold") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  auto array = fixture.Cluster();
  const UsedVolume volume(*array);
  const pid_t pid = TgtdProcess(fixture.options.control_port);
  array.reset();
  fixture.Close();
  CHECK(volume.initiator->Write(1, 'x'));
  REQUIRE(fixture.Open().ok());
  CHECK(TgtdProcess(fixture.options.control_port) == pid);
  array = fixture.Cluster();
  CHECK(volume.initiator->Write(1, 'y'));
  const auto again = array->grants().AcquireGrant(For(volume.id, kA), absl::ZeroDuration());
  REQUIRE(again.ok());
  CHECK(again->connection == volume.connection);
  CHECK(array->grants().ReleaseGrant(volume.id, kA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK_FALSE(volume.initiator->Write(1, 'z'));
}

TEST_CASE("with another portal and control port the pool is not served by a second tgtd") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  auto array = fixture.Cluster();
  const UsedVolume volume(*array);
  const pid_t first = TgtdProcess(fixture.options.control_port);
  array.reset();
  fixture.Close();
  const TgtArrayOptions was = fixture.options;
  fixture.options.portals = {absl::StrCat("127.0.0.1:", FreePort())};
  fixture.options.control_port = FreeControlPort();
  const absl::Status refused = fixture.Open();
  CHECK(absl::IsFailedPrecondition(refused));
  INFO(refused.message());
  CHECK(absl::StrContains(refused.message(), absl::StrCat(first)));
  CHECK(absl::StrContains(refused.message(), absl::StrCat("--tgt-control-port=", was.control_port)));
  const pid_t second = TgtdProcess(fixture.options.control_port);
  CHECK(second == 0);
  fixture.Close();
  if (second > 0) ::kill(second, SIGKILL);
  CHECK(volume.initiator->Write(1, 'y'));

  fixture.options.control_port = was.control_port;  // a new portal alone is no trouble
  REQUIRE(fixture.Open() == absl::OkStatus());
  array = fixture.Cluster();
  CHECK(TgtdProcess(was.control_port) == first);
  const auto term = array->fences().BeginTerm("leader");
  CHECK(array->fences().FenceNode(*term, {kA, {volume.id}}).status() == absl::OkStatus());
  CHECK_FALSE(volume.initiator->Write(1, 'z'));
}

TEST_CASE("the tgtd of another pool on the same control port is left alone") {
  ArrayFixture other;
  REQUIRE(other.Open().ok());
  const UsedVolume volume(*other.Cluster());
  const pid_t pid = TgtdProcess(other.options.control_port);
  other.Close();
  ArrayFixture fixture;
  fixture.options.control_port = other.options.control_port;
  const absl::Status refused = fixture.Open();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), absl::StrCat(pid)));
  fixture.Close();
  CHECK(TgtdProcess(other.options.control_port) == pid);
  CHECK(volume.initiator->Write(1, 'y'));
}

TEST_CASE("a volume that cannot be put back after a restart of tgtd is told to wait, and is back by itself") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open().ok());
  const auto array = fixture.Cluster();
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  REQUIRE(grant.ok());
  const std::string path = fixture.options.pool_dir + "/volumes/" + volume->id.value();
  const std::string away = fixture.directory.path() + "/away";
  std::filesystem::rename(path, away);
  const pid_t pid = TgtdProcess(fixture.options.control_port);
  ::kill(pid, SIGKILL);
  const auto not_found = [&] {
    const absl::Status login = PlainInitiator::Login(grant->connection).status();
    return absl::IsPermissionDenied(login) && absl::StrContains(login.message(), "not found");
  };
  REQUIRE(Eventually([&] {
    const pid_t now = TgtdProcess(fixture.options.control_port);
    return now > 0 && now != pid;
  }));
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(not_found());
    absl::SleepFor(absl::Milliseconds(50));
  }
  const bool over_a_restart_of_the_agent = GENERATE(false, true);
  if (over_a_restart_of_the_agent) REQUIRE(fixture.Open().ok());
  CHECK_FALSE(not_found());
  std::filesystem::rename(away, path);
  CHECK(Eventually([&] { return CanWrite(grant->connection, 1, 'x'); }));
}

// On Ceph a program that opens it then would be taken for that tgtd's by the next gateway.
TEST_CASE_METHOD(WithOneSilent, "an image that tgtd hung on is not noted as being opened while it is not") {
  const GrantRow row = AddGrant(grants[2].volume);
  std::ofstream(options.pool_dir + "/opening") << row.generation;
  BeginAgent();
  REQUIRE(table->openings().BlameImage());
  const auto volume = catalogue->volumes().FindVolume(row.cluster, row.volume);
  const LunBacking backing = {.path = store.VolumePath(row.volume), .may_be_silent_alone = true};
  bool is_noted = false;
  const AroundOpening around = {.opening = [&] {
    is_noted = true;
    return absl::OkStatus();
  }};
  CHECK(absl::IsUnavailable(table->OpenTarget(row, volume->volume, backing, around)));
  CHECK_FALSE(is_noted);
}

// As where one placement group of Ceph is inactive: the rest of the image answers.
TEST_CASE_METHOD(WithOneSilent,
                 "a volume of which one command hangs goes on when it cannot be closed to grow") {
  store.LetAnswer();
  const Grant& grant = grants[2];
  store.SilenceRegistering(grant.volume);  // its client is registered, as on Ceph
  drain_timeout = absl::Milliseconds(2500);
  BeginAgent();
  EndTgtd();
  SlowWrites slow(*this);
  Serve();
  REQUIRE(Writes(grant));
  const auto initiator = PlainInitiator::Login(grant.connection).value();
  slow.Set(60'000);
  const std::jthread hangs([&] { initiator->Write(0, 'h'); });
  absl::SleepFor(absl::Seconds(1));
  slow.Set(0);
  {
    const auto pass = gates.Enter(grant.volume, absl::Now() + absl::Minutes(1));
    CHECK(absl::IsUnavailable(targets->ReopenLun(RowOf(grant))));
  }
  CHECK(Eventually([&] { return CanWrite(grant.connection, 5, 'x'); }));
  daemon.reset();
  EndTgtd();
}

}  // namespace
}  // namespace lunkeeper::testing
