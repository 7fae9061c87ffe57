// Heartbeat LUNs of the real array.

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1");
// The file that this program cannot write to; 0: it can write to all.
std::atomic<ino_t> unwritable{0};

bool IsUnwritable(int fd) {
  struct stat file {};
  return unwritable != 0 && ::fstat(fd, &file) == 0 && file.st_ino == unwritable;
}

struct Heartbeats : ClusterFixture {
  Connection Access(const NodeId& node) {
    const auto access = array->fences().OpenHeartbeatLun({node});
    REQUIRE(access.status() == absl::OkStatus());
    return *access;
  }
  std::string FileOf(const Connection& access) const {
    const std::string& target = access.target.value();
    return options.pool_dir + "/heartbeat_luns/" + target.substr(target.rfind(':') + 1);
  }
  std::optional<LandedHeartbeat> HeartbeatOf(const NodeId& node) {
    const auto heartbeats = array->fences().ListHeartbeats();
    REQUIRE(heartbeats.status() == absl::OkStatus());
    for (const LandedHeartbeat& heartbeat : *heartbeats)
      if (heartbeat.node == node) return heartbeat;
    return std::nullopt;
  }
  bool Seen(const NodeId& node, uint64_t sequence) {
    return Eventually([&] {
      const auto heartbeat = HeartbeatOf(node);
      return heartbeat && heartbeat->sequence == sequence;
    });
  }
};

// A node's session with a heartbeat LUN.
class Writer {
 public:
  explicit Writer(const Connection& connection) {
    // A tgtd that is being started again may not listen yet.
    Eventually([&] {
      session_ = LibiscsiSession::Login(connection);
      return !absl::IsUnavailable(session_.status());
    });
  }
  absl::Status status() const { return session_.status(); }
  bool Write(const std::string& bytes) { return status().ok() && (*session_)->WriteBlocks(0, bytes).ok(); }
  std::optional<FenceNotice> Note(const std::string& key = "") {
    REQUIRE(status() == absl::OkStatus());
    std::string bytes(kSectorBytes, '\0');
    REQUIRE((*session_)->ReadBlocks(kNoteBlock, bytes).ok());
    const auto size = NoteBytes(bytes);
    if (!size.ok()) return std::nullopt;
    bytes.resize(*size);
    REQUIRE((*session_)->ReadBlocks(kNoteBlock, bytes).ok());
    const auto notice = ReadFenceNotice(bytes, key);
    return notice.ok() ? std::optional(*notice) : std::nullopt;
  }
  bool Heartbeat(uint64_t sequence, const NodeId& node = kA) {
    return Write(WriteHeartbeatBlock({.node = node, .boot = "boot", .sequence = sequence}));
  }

 private:
  absl::StatusOr<std::unique_ptr<LibiscsiSession>> session_ = absl::UnknownError("");
};

TEST_CASE_METHOD(
    Heartbeats,
    "a node's heartbeats land and are seen, also after the agent and after tgtd were started again") {
  const Connection access = Access(kA);
  CHECK_FALSE(HeartbeatOf(kA));
  {
    Writer writer(access);
    REQUIRE(writer.Heartbeat(1));
    REQUIRE(Seen(kA, 1));
    const absl::Duration age = HeartbeatOf(kA)->age;
    CHECK(Eventually([&] { return HeartbeatOf(kA)->age > age; }));

    array.reset();
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
    CHECK_FALSE(HeartbeatOf(kA));  // nobody knows how old what stands there is
    uint64_t next = 2;
    CHECK(Eventually([&] {
      REQUIRE(writer.Heartbeat(next++));
      return HeartbeatOf(kA).has_value();
    }));
  }
  REQUIRE(::kill(TgtdProcess(options.control_port), SIGKILL) == 0);
  // Not only when it is asked for: a node may be cut off from whom it would ask.
  CHECK(Eventually([&] { return Writer(access).Heartbeat(7); }, absl::Seconds(30)));
  CHECK(Seen(kA, 7));
  CHECK((Access(kA) == access));
}

TEST_CASE_METHOD(Heartbeats,
                 "the target of a heartbeat LUN proves itself, however long its machine has no volume") {
  options.accounts_kept_for = absl::ZeroDuration();
  const Connection access = Access(kA);
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  absl::SleepFor(absl::Seconds(3));  // some ticks, which delete accounts that nothing uses
  const auto accounts = TgtClient(options.control_port).ListAccounts();
  REQUIRE(accounts.status() == absl::OkStatus());
  CHECK(std::ranges::count(*accounts, access.target_chap.user) == 1);
  CHECK(Writer(access).Heartbeat(1));
}

TEST_CASE_METHOD(Heartbeats, "a heartbeat LUN is its node's alone") {
  const Connection a = Access(kA), b = Access(kB);
  CHECK(a.target != b.target);
  CHECK(a.chap.secret != b.chap.secret);
  Connection thief = a;
  thief.initiator = b.initiator;
  thief.chap = b.chap;
  CHECK(absl::IsPermissionDenied(Writer(thief).status()));
  thief.initiator = a.initiator;  // a name is no proof
  CHECK(absl::IsPermissionDenied(Writer(thief).status()));
  CHECK(Writer(a).status().ok());
  CHECK(Cluster("c2")->fences().ListHeartbeats()->empty());
  CHECK(Cluster("c2")->fences().OpenHeartbeatLun({kA})->target != a.target);
}

TEST_CASE_METHOD(Heartbeats, "a heartbeat LUN is no volume, and a fence of its node leaves it alone") {
  Writer writer(Access(kA));
  REQUIRE(writer.Heartbeat(1));
  CHECK(array->volumes().ListVolumes("", 0)->items.empty());
  CHECK(array->grants().ListGrants({})->empty());
  CHECK(array->grants().ListSessions()->empty());
  const auto term = array->fences().BeginTerm("test");
  REQUIRE(array->fences().FenceNode(*term, {kA, {}}).ok());
  CHECK(writer.Heartbeat(2));
  CHECK(Seen(kA, 2));
  CHECK(Writer(Access(kA)).status().ok());
}

TEST_CASE_METHOD(Heartbeats, "a malformed sector, or one in another node's name, changes nothing") {
  Writer writer(Access(kA));
  Access(kB);
  REQUIRE(writer.Heartbeat(1));
  REQUIRE(Seen(kA, 1));
  const std::string bad =
      GENERATE(std::string(512, 'x'), WriteHeartbeatBlock({.node = kB, .boot = "boot", .sequence = 9}));
  REQUIRE(writer.Write(bad));
  const absl::Duration age = HeartbeatOf(kA)->age;
  CHECK(Eventually(
      [&] { return HeartbeatOf(kA)->age > age + absl::Seconds(1); }));  // longer than between two looks
  CHECK(HeartbeatOf(kA)->sequence == 1);
  CHECK_FALSE(HeartbeatOf(kB));
  REQUIRE(writer.Heartbeat(2));
  CHECK(Seen(kA, 2));
}

TEST_CASE_METHOD(Heartbeats,
                 "a fenced node reads on its heartbeat LUN what is fenced, until the fence is lifted") {
  Writer node(Access(kA));
  CHECK_FALSE(node.Note());
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  REQUIRE(array->grants().AcquireGrant({.volume = volume->id, .node = kA}, absl::ZeroDuration()).ok());
  const auto term = array->fences().BeginTerm("test");
  const auto fence = array->fences().FenceNode(*term, {kA, {volume->id}});
  REQUIRE(fence.ok());
  const FenceNotice wanted{.generation = fence->generation, .volumes = {volume->id}};
  CHECK(Eventually([&] { return node.Note() == wanted; }));
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  CHECK(node.Note() == wanted);
  CHECK_FALSE(Writer(Access(kB)).Note());
  REQUIRE(array->fences().UnfenceNode(*term, kA, fence->generation).ok());
  CHECK(Eventually([&] { return !node.Note(); }));
}

TEST_CASE_METHOD(Heartbeats, "a heartbeat file that cannot be written keeps no other node's notice away") {
  const Connection a = Access(kA);
  struct stat found {};
  REQUIRE(::stat(FileOf(a).c_str(), &found) == 0);
  const auto term = array->fences().BeginTerm("test");
  Access(kB);
  unwritable = found.st_ino;
  for (const NodeId& node : {kA, kB})
    REQUIRE(array->fences().FenceNode(*term, {node, {VolumeId("a1-v1")}}).ok());
  CHECK(Eventually([&] { return Writer(Access(kB)).Note().has_value(); }));
  // Nor is another node's key to wait for it.
  const auto signs = array->fences().OpenHeartbeatLun({.node = kB, .signs = true});
  REQUIRE(signs.status() == absl::OkStatus());
  CHECK(Writer(*signs).Note(signs->signing_key).has_value());
  CHECK_THAT(std::string(array->fences().OpenHeartbeatLun({.node = kA, .signs = true}).status().message()),
             Catch::Contains("fence notice of node node-a.1"));
  unwritable = 0;
  CHECK(Eventually([&] {
    const auto again = array->fences().OpenHeartbeatLun({.node = kA, .signs = true});
    return again.ok() && Writer(*again).Note(again->signing_key).has_value();
  }));
}

TEST_CASE_METHOD(Heartbeats, "who signs is heard by its signature alone, and reads a signed notice") {
  REQUIRE(Writer(Access(kA)).Heartbeat(1));
  REQUIRE(Seen(kA, 1));
  const Connection plain = Access(kA);
  CHECK(plain.signing_key.empty());
  const auto access = array->fences().OpenHeartbeatLun({.node = kA, .signs = true});
  REQUIRE(access.ok());
  CHECK(access->signing_key.size() == 32);
  CHECK(access->target == plain.target);
  CHECK((*array->fences().OpenHeartbeatLun({.node = kA, .signs = true}) == *access));
  {
    // A node that asks two controllers at once hears one key.
    const Connection of_b = Access(kB);
    std::vector<std::string> keys(8);
    {
      std::vector<std::jthread> askers;
      for (std::string& key : keys)
        askers.emplace_back(
            [&] { key = array->fences().OpenHeartbeatLun({.node = kB, .signs = true})->signing_key; });
    }
    CHECK(keys == std::vector<std::string>(8, keys.front()));
    CHECK_FALSE(keys.front().empty());
  }
  Writer writer(*access);
  const auto write = [&](uint64_t sequence, const std::string& key) {
    return writer.Write(WriteHeartbeatBlock({.node = kA, .boot = "boot", .sequence = sequence}, key));
  };
  REQUIRE(write(2, access->signing_key));
  REQUIRE(Eventually([&] { return write(3, access->signing_key) && HeartbeatOf(kA)->sequence == 3; }));
  REQUIRE(write(4, ""));
  const absl::Duration age = HeartbeatOf(kA)->age;
  CHECK(Eventually([&] { return HeartbeatOf(kA)->age > age + absl::Seconds(1); }));
  CHECK(HeartbeatOf(kA)->sequence == 3);

  const auto term = array->fences().BeginTerm("test");
  REQUIRE(array->fences().FenceNode(*term, {kA, {VolumeId("a1-v1")}}).ok());
  CHECK(Eventually([&] { return writer.Note(access->signing_key).has_value(); }));
  CHECK_FALSE(writer.Note("another key"));
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  CHECK((*array->fences().OpenHeartbeatLun({.node = kA, .signs = true}) == *access));
  // An older plugin on the same node.
  CHECK(Access(kA).signing_key.empty());
  uint64_t next = 5;
  REQUIRE(Eventually([&] { return writer.Heartbeat(next++) && HeartbeatOf(kA).has_value(); }));
  CHECK(Eventually([&] { return writer.Note().has_value() && !writer.Note(access->signing_key); }));
}

TEST_CASE_METHOD(Heartbeats, "a machine does not get heartbeat LUNs without end") {
  for (int i = 0; i < 16; ++i) Access(NodeId("node-a." + std::to_string(i)));
  CHECK(absl::IsResourceExhausted(array->fences().OpenHeartbeatLun({NodeId("node-a.16")}).status()));
  Access(NodeId("node-a.15"));
  Access(NodeId("node-a.b.0"));
  Access(kB);
}

TEST_CASE_METHOD(Heartbeats, "machines whose names begin like another's take none of its heartbeat LUNs") {
  for (int i = 0; i < 16; ++i) Access(NodeId("db.e1." + std::to_string(i)));
  Access(NodeId("db.0"));
}

TEST_CASE_METHOD(
    Heartbeats,
    "a heartbeat LUN that nobody wrote to for a week is forgotten, and made again when asked for") {
  options.tidy_heartbeat_luns_every = absl::Seconds(1);
  const Connection first = Access(kA), other = Access(kB);
  Run("touch -d '8 days ago' " + FileOf(first));
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  CHECK(Eventually([&] {
    const auto again = array->fences().OpenHeartbeatLun({kA});
    if (absl::IsAborted(again.status()))
      return false;  // forgotten at this very moment: to be asked for again
    REQUIRE(again.status() == absl::OkStatus());
    return again->target != first.target;
  }));
  CHECK(Writer(Access(kA)).Heartbeat(1));
  CHECK((Access(kB) == other));
  CHECK(absl::IsPermissionDenied(Writer(first).status()));
}

// As after a week in which the storage host was off, or slept. Whatever the wall clock says then, no node
// could write.
TEST_CASE_METHOD(Heartbeats,
                 "a heartbeat LUN whose node could not write for a week is kept for as long as it may yet") {
  options.tidy_heartbeat_luns_every = absl::Seconds(8);
  const Connection writes = Access(kA), idle = Access(kB);
  array.reset();
  Run(absl::StrCat("touch -d '8 days ago' ", FileOf(writes), " ", FileOf(idle)));
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  absl::SleepFor(absl::Seconds(1));  // some looks
  Writer writer(writes);
  REQUIRE(writer.Heartbeat(1));
  CHECK((Access(kA) == writes));
  CHECK((Access(kB) == idle));
  CHECK(Eventually([&] { return absl::IsPermissionDenied(Writer(idle).status()); }, absl::Seconds(30)));
  CHECK((Access(kA) == writes));
  CHECK(writer.Heartbeat(2));
}

TEST_CASE_METHOD(Heartbeats, "a heartbeat LUN's node has as long as that again after tgtd was down") {
  options.tidy_heartbeat_luns_every = absl::Seconds(8);
  const Connection access = Access(kA);
  array.reset();
  Run("touch -d '8 days ago' " + FileOf(access));
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  absl::SleepFor(absl::Seconds(5));
  REQUIRE(::kill(TgtdProcess(options.control_port), SIGKILL) == 0);
  absl::SleepFor(absl::Seconds(6));  // the second search is over
  CHECK((Access(kA) == access));
}

TEST_CASE_METHOD(Heartbeats, "the file of a heartbeat LUN that another host has forgotten is removed") {
  const Connection access = Access(kA);
  const std::string left = options.pool_dir + "/heartbeat_luns/4711";
  array.reset();
  Run("cp " + FileOf(access) + " " + left);
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  CHECK_FALSE(std::ifstream(left).is_open());
  CHECK(Writer(access).Heartbeat(1));
}

}  // namespace
}  // namespace lunkeeper::testing

// In place of libc's, under both names.
extern "C" ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  if (!lunkeeper::testing::IsUnwritable(fd)) return ::syscall(SYS_pwrite64, fd, bytes, size, at);
  errno = EIO;
  return -1;
}
extern "C" ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite64(fd, bytes, size, at);
}
