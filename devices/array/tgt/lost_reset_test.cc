// A node that is cut off while its LUN reset waits for a write, and logs in again: tgtd answers only its
// second reset, and lists the session of the first for as long as it lives (docs/tgt.md).

#include <catch2/catch.hpp>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/slow_writes.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kCutOff("node-a.1"), kNext("node-b.1");
constexpr absl::Duration kShort = absl::Milliseconds(300);  // in which what was sent has reached tgtd

// A session that is cut when it goes.
class RawSession {
 public:
  explicit RawSession(const Connection& connection)
      : context_(iscsi_create_context(connection.initiator.value().c_str())) {
    ::signal(SIGPIPE, SIG_IGN);
    iscsi_set_noautoreconnect(context_.get(), 1);
    iscsi_set_targetname(context_.get(), connection.target.value().c_str());
    iscsi_set_session_type(context_.get(), ISCSI_SESSION_NORMAL);
    iscsi_set_initiator_username_pwd(context_.get(), connection.chap.user.c_str(),
                                     connection.chap.secret.c_str());
    REQUIRE(iscsi_full_connect_sync(context_.get(), connection.portal.c_str(), 1) == 0);
  }
  void SendWrite() {
    REQUIRE(iscsi_write16_task(context_.get(), 1, 0, data_, sizeof data_, 512, 0, 0, 0, 0, 0, Done, this) !=
            nullptr);
  }
  void SendReset() { REQUIRE(iscsi_task_mgmt_lun_reset_async(context_.get(), 1, Done, this) == 0); }
  // More pings than the sockets have room for answers to, of which it reads none: tgtd cannot end the session
  // while the node's socket is there.
  void SendUnreadPings() {
    const int size = 4096, socket = iscsi_get_fd(context_.get());
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    std::string ping(128 << 10, 'x');
    for (int i = 0; i < 100; ++i)
      REQUIRE(iscsi_nop_out_async(context_.get(), Done, reinterpret_cast<unsigned char*>(ping.data()),
                                  static_cast<int>(ping.size()), this) == 0);
    SendAll();
  }
  // More data than the sockets have room for, of which it reads none: the commands are over at the disk, and
  // for tgtd they run.
  void SendUnreadReads() {
    const int size = 4096, socket = iscsi_get_fd(context_.get());
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    for (int i = 0; i < 64; ++i)
      REQUIRE(iscsi_read16_task(context_.get(), 1, 0, kReadBytes, 512, 0, 0, 0, 0, 0, Done, this) != nullptr);
    SendAll();
  }
  // Keeps this many reads under way, as deep as the sockets have room for and more; false once one has
  // failed.
  bool ReadsFor(absl::Duration length) {
    const absl::Time end = absl::Now() + length;
    for (int i = 0; i < 64; ++i) SendRead();
    while (reads_good_ && absl::Now() < end) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()),
                   .events = static_cast<short>(iscsi_which_events(context_.get())),
                   .revents = 0};
      if (::poll(&fd, 1, 10) < 0 || iscsi_service(context_.get(), fd.revents) != 0) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return std::exchange(reads_good_, false);
  }
  // Whether what was sent is answered.
  bool IsAnswered(absl::Duration within) {
    for (const absl::Time end = absl::Now() + within; !answered_ && absl::Now() < end;) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()),
                   .events = static_cast<short>(iscsi_which_events(context_.get())),
                   .revents = 0};
      REQUIRE(::poll(&fd, 1, 10) >= 0);
      REQUIRE(iscsi_service(context_.get(), fd.revents) == 0);
    }
    return answered_;
  }

 private:
  void SendAll() {
    for (const absl::Time end = absl::Now() + absl::Seconds(2);
         iscsi_out_queue_length(context_.get()) > 0 && absl::Now() < end;) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()), .events = POLLOUT, .revents = 0};
      REQUIRE(::poll(&fd, 1, 10) >= 0);
      if ((fd.revents & POLLOUT) != 0) REQUIRE(iscsi_service(context_.get(), POLLOUT) == 0);
    }
    REQUIRE(iscsi_out_queue_length(context_.get()) == 0);
    absl::SleepFor(kShort);  // what tgtd has not read yet would wake it, and it would end the session
  }
  struct Deleter {
    void operator()(iscsi_context* context) const { iscsi_destroy_context(context); }
  };
  void SendRead() {
    reads_good_ =
        iscsi_read16_task(context_.get(), 1, 0, kReadBytes, 512, 0, 0, 0, 0, 0, ReadDone, this) != nullptr;
  }
  static void ReadDone(iscsi_context*, int status, void* task, void* self) {
    auto* const session = static_cast<RawSession*>(self);
    if (task != nullptr) scsi_free_scsi_task(static_cast<scsi_task*>(task));
    if (!session->reads_good_) return;
    session->reads_good_ = status == SCSI_STATUS_GOOD;
    if (session->reads_good_) session->SendRead();
  }
  // Also when the context goes.
  static void Done(iscsi_context*, int, void*, void* self) {
    static_cast<RawSession*>(self)->answered_ = true;
  }

  static constexpr int kReadBytes = 128 << 10;
  bool answered_ = false, reads_good_ = true;
  unsigned char data_[512] = {};
  const std::unique_ptr<iscsi_context, Deleter> context_;
};

// A volume of which tgtd lists a session for good, although none of its commands is left.
struct LostReset : ArrayFixture {
  LostReset() {
    REQUIRE(Open() == absl::OkStatus());
    cluster = Cluster();
    volume = cluster->volumes().CreateVolume(Spec("v", 16)).value().id;
    connection = Acquire(kCutOff, absl::ZeroDuration()).value().connection;
    slow.Set(2000);
    Cut([](RawSession& session) { session.SendWrite(); });
    slow.Set(0);
    Cut([](RawSession& session) { session.SendReset(); });
    RawSession session(connection);
    session.SendReset();
    REQUIRE(session.IsAnswered(absl::Seconds(20)));
  }
  template <class Send>
  void Cut(Send send) {
    RawSession session(connection);
    send(session);
    REQUIRE_FALSE(session.IsAnswered(kShort));
  }
  absl::StatusOr<Grant> Acquire(const NodeId& node, absl::Duration wait) {
    return cluster->grants().AcquireGrant(
        {.volume = volume, .node = node, .access = Access::kExclusive, .owner = GrantOwner::kNode}, wait);
  }

  SlowWrites slow{*this};
  std::unique_ptr<Array> cluster;
  VolumeId volume;
  Connection connection;
};

TEST_CASE_METHOD(LostReset,
                 "a volume with a session that tgtd never ends is fenced, and another node has it") {
  const auto term = cluster->fences().BeginTerm("leader");
  REQUIRE(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  CHECK_FALSE(PlainInitiator::Login(connection).ok());
  const auto next = Acquire(kNext, absl::Seconds(20));
  REQUIRE(next.status() == absl::OkStatus());
  CHECK(PlainInitiator::Login(next->connection).value()->Write(1, 'x'));
  SECTION("its empty target is no reason for the agent's next start to end anybody's session") {
    const pid_t before = TgtdProcess(options.control_port);
    auto session = PlainInitiator::Login(next->connection);
    REQUIRE(session.ok());
    REQUIRE(Open() == absl::OkStatus());
    CHECK(TgtdProcess(options.control_port) == before);
    CHECK(session.value()->Write(2, 'y'));
    CHECK(TgtClient(options.control_port).ListTargets()->size() ==
          3);  // the one of nobody, and the empty one
  }
}

TEST_CASE_METHOD(LostReset, "a volume with a session that tgtd never ends is released") {
  REQUIRE(cluster->grants().ReleaseGrant(volume, kCutOff, GrantOwner::kNode, kAnyGeneration) ==
          absl::OkStatus());
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
}

TEST_CASE_METHOD(LostReset, "a volume with a session that tgtd never ends grows, and is fenced later") {
  REQUIRE(cluster->volumes().ExpandVolume(volume, 32 << 20).status() == absl::OkStatus());
  CHECK(PlainInitiator::Login(connection).value()->SizeBytes() == 32 << 20);
  const auto term = cluster->fences().BeginTerm("leader");
  CHECK(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
}

// Its command is what counts, not how long its session is listed.
TEST_CASE_METHOD(LostReset, "a write in hand is waited for, also beside a session that tgtd never ends") {
  slow.Set(4000);
  Cut([](RawSession& session) { session.SendWrite(); });
  slow.Set(0);
  const auto term = cluster->fences().BeginTerm("leader");
  const absl::Time begin = absl::Now();
  CHECK(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  CHECK(absl::Now() - begin > absl::Milliseconds(2500));
}

// Its kernel answers for ever: it is frozen, or means it.
TEST_CASE_METHOD(ClusterFixture,
                 "a node that takes no answers is fenced and released while its socket is there") {
  const VolumeId volume = Make("v");
  const Connection connection = Acquire(volume, kCutOff).value().connection;
  RawSession session(connection);
  SECTION("to reads, which are over at the disk alone") { session.SendUnreadReads(); }
  SECTION("to pings") { session.SendUnreadPings(); }
  const pid_t before = TgtdProcess(options.control_port);
  if (GENERATE(false, true)) {
    REQUIRE(Release(volume, kCutOff) == absl::OkStatus());
  } else {
    const auto term = array->fences().BeginTerm("leader");
    REQUIRE(array->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  }
  CHECK_FALSE(PlainInitiator::Login(connection).ok());
  CHECK(Eventually([&] { return TgtClient(options.control_port).ListTargets()->size() == 1; }));  // nobody's
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  CHECK(TgtdProcess(options.control_port) == before);
}

struct LeftTarget {
  std::string what, array;
  int further;  // than the generation of a grant that is gone
  bool adopted;
};

TEST_CASE_METHOD(ClusterFixture, "an agent that starts adopts an empty target only where its grant is gone") {
  const auto left = GENERATE(LeftTarget{"gone", "a1", 0, true}, LeftTarget{"to come", "a1", 1, false},
                             LeftTarget{"of another array", "a2", 0, false});
  INFO(left.what);
  const VolumeId volume = Make("v");
  const Generation gone = Acquire(volume, kCutOff).value().generation;
  REQUIRE(Release(volume, kCutOff) == absl::OkStatus());
  const auto number = static_cast<int32_t>(gone) + left.further;
  const TgtClient tgt(options.control_port);
  REQUIRE(tgt.NewTarget(number, Iqn(absl::StrCat("iqn.2026-11.io.lunkeeper:", left.array, ":", volume.value(),
                                                 ":", number))) == absl::OkStatus());
  const pid_t before = TgtdProcess(options.control_port);
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  CHECK((TgtdProcess(options.control_port) == before) == left.adopted);
  CHECK(Eventually([&] { return tgt.ListTargets()->size() == 1; }));  // the one of nobody
}

// tgtd tells of a session only the address, which all volumes of a node share.
TEST_CASE_METHOD(LostReset, "a node goes on reading one volume while another's slow write is waited for") {
  const VolumeId read = cluster->volumes().CreateVolume(Spec("read", 16)).value().id;
  RawSession reader(
      cluster->grants()
          .AcquireGrant(
              {.volume = read, .node = kCutOff, .access = Access::kExclusive, .owner = GrantOwner::kNode},
              absl::ZeroDuration())
          .value()
          .connection);
  slow.Set(9000);
  Cut([](RawSession& session) { session.SendWrite(); });
  slow.Set(0);
  absl::Status released = absl::UnknownError("under way");
  const absl::Time begin = absl::Now();
  std::jthread release(
      [&] { released = cluster->grants().ReleaseGrant(volume, kCutOff, GrantOwner::kNode, kAnyGeneration); });
  CHECK(reader.ReadsFor(absl::Seconds(10)));
  release.join();
  CHECK(released == absl::OkStatus());
  CHECK(absl::Now() - begin > absl::Seconds(7));
}

}  // namespace
}  // namespace lunkeeper::testing
