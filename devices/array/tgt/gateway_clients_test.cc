// Part of rbd_array_test: needs a Ceph. What becomes of clients that end while their image stays granted.

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/testing/lease_gateway.h"
#include "devices/array/tgt/testing/on_ceph.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
namespace {

// Where the monitors shut nobody out.
std::atomic<int> refusals = 0;
decltype(CephLibrary::rados_mon_command) command_for_real;
int RefuseToBlock(CephLibrary::Handle cluster, const char** command, size_t commands, const char* in,
                  size_t in_size, char** out, size_t* out_size, char** text, size_t* text_size) {
  if (!absl::StrContains(command[0], "osd blocklist"))
    return command_for_real(cluster, command, commands, in, in_size, out, out_size, text, text_size);
  ++refusals;
  return -EIO;
}

// Of an image that stays granted, a client that ends and one that goes on.
struct WithClients : Leases {
  WithClients() {
    a.TakeAndServe();
    REQUIRE(a.lease->RegisterImage("lk/i", {tgtd->address(), kOther}) == absl::OkStatus());
  }
  std::set<ClientAddress> Named() const {
    const GatewayRecord record = a.Record();
    const auto found = record.images.find("lk/i");
    return found == record.images.end() ? std::set<ClientAddress>() : found->second;
  }

  inline static const ClientAddress kOther = "127.0.0.1:0/4294967288";
  Gateway a{array, "host-a"};
  std::unique_ptr<CephPool> tgtd = ConnectToCeph();
};

struct WithSharedVolume : OnCeph {
  explicit WithSharedVolume(int tgtds = 2) : OnCeph(tgtds) {}
  Grant Acquire(const VolumeId& volume, const NodeId& node) {
    const auto grant = cluster->grants().AcquireGrant(
        {.volume = volume, .node = node, .access = Access::kSharedWrite}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    return *grant;
  }
};

struct OfOneTgtd : WithSharedVolume {
  OfOneTgtd() : WithSharedVolume(1) {}
};

// As a program of somebody else that has the image open.
struct Stranger {
  Stranger(const OnCeph& on, const VolumeId& volume)
      : pool(CephPool::Connect(on.options.ceph).value()),
        key("lunkeeper.test." + on.options.name),
        image(pool->OpenImage(on.ImageOf(volume).substr(3), "", /*read_only=*/false).value()) {}
  void Close() { image.reset(); }
  bool CanWrite() const { return pool->WriteKey(key, "k", "v").ok(); }
  bool IsNamed(const absl::Status& status) const {
    return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), pool->address());
  }

  std::unique_ptr<CephPool> pool;
  const std::string key;
  std::optional<RbdImage> image;
};

std::set<ClientAddress> NamedOf(const OnCeph& on, const VolumeId& volume) {
  const auto record = ReadGatewayRecord(*ConnectToCeph(), on.options.name);
  REQUIRE(record.status() == absl::OkStatus());
  const auto found = (*record)->images.find(on.ImageOf(volume));
  return found == (*record)->images.end() ? std::set<ClientAddress>() : found->second;
}

// A list of who has an image open that shows one in the place of another.
ClientAddress hidden, shown;
decltype(CephLibrary::rbd_watchers_list) list_for_real;
int ListOther(CephLibrary::Handle image, CephLibrary::Watcher* watchers, size_t* most) {
  const int listed = list_for_real(image, watchers, most);
  for (size_t i = 0; listed >= 0 && i < *most; ++i) {
    if (watchers[i].address != hidden) continue;
    std::free(watchers[i].address);
    watchers[i].address = strdup(shown.c_str());
  }
  return listed;
}

// Ends one by SIGKILL, and waits for the next one.
void KillTgtd(const OnCeph& on, int control_port) {
  const pid_t killed = TgtdProcess(control_port);
  REQUIRE(killed > 0);
  ::kill(killed, SIGKILL);
  REQUIRE(Eventually([&] {
    const pid_t now = TgtdProcess(control_port);
    return now > 0 && now != killed && on.array->CheckTgtd().ok();
  }));
}

}  // namespace

TEST_CASE_METHOD(WithClients, "gateway lease: a client that has ended is shut out and then forgotten") {
  a.lease->clients().NoteEnded("lk/i", {tgtd->address()});
  CHECK(Eventually([&] { return Named() == std::set<ClientAddress>{kOther}; }));
  CHECK(a.lease->shut_out().contains(tgtd->address()));
  CHECK(a.CanWrite());
  CHECK(!tgtd->WriteKey("lunkeeper.test." + array, "k", "v").ok());
  CHECK(a.lost == 0);
  // An image shows it for a while.
  CHECK(absl::IsUnavailable(a.lease->RegisterImage("lk/i", {tgtd->address()})));
  const ClientAddress next = "127.0.0.1:0/4294967287";
  CHECK(a.lease->RegisterImage("lk/i", {tgtd->address(), next}) == absl::OkStatus());
  CHECK(Named() == std::set<ClientAddress>{kOther, next});
}

// As where the agent is killed in between.
TEST_CASE_METHOD(WithClients, "gateway lease: a client that has ended is named until it is shut out") {
  Gateway b(array, "host-b");
  {
    command_for_real = Library().rados_mon_command;
    refusals = 0;
    const ReplacedCall command(Library().rados_mon_command, RefuseToBlock);
    a.lease->clients().NoteEnded("lk/i", {tgtd->address()});
    CHECK(Eventually([&] { return refusals > 1; }));
    CHECK(a.lease->ForgetClosed([] { return std::set<std::string>(); }) == absl::OkStatus());
    CHECK(Named() == std::set<ClientAddress>{tgtd->address()});  // the other one has closed it
    CHECK_FALSE(a.lease->shut_out().contains(tgtd->address()));
    a.Die();
  }
  b.TakeAndServe();
  CHECK(b.lease->shut_out().contains(tgtd->address()));
  CHECK(b.CanWrite());
  CHECK(!tgtd->WriteKey("lunkeeper.test." + array, "k", "v").ok());
}

TEST_CASE_METHOD(WithClients, "gateway lease: a record that nobody could read is not written") {
  std::set<ClientAddress> many;
  for (int i = 0; i < 50'000; ++i) many.insert(absl::StrCat("127.0.0.1:0/", i));
  CHECK(absl::IsResourceExhausted(a.lease->RegisterImage("lk/j", many)));
  CHECK(a.Record().images.size() == 1);
  CHECK(a.lease->ConfirmHeld() == absl::OkStatus());
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a volume goes on soon after tgtd was killed, and the record stays short") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const auto pool = CephPool::Connect(options.ceph);
  REQUIRE(pool.status() == absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    KillTgtd(*this, options.control_port);
    const absl::Time served = absl::Now();
    CHECK(Login(volume)->Write(0, 'b'));
    CHECK(absl::Now() - served < absl::Seconds(10));  // the dead client's watch lasts for 30
  }
  CHECK(Eventually([&] {
    const auto record = ReadGatewayRecord(**pool, options.name);
    return record.ok() && record->has_value() && (*record)->images.at(ImageOf(volume)).size() == 1;
  }));
}

// Which of the clients of an image that two tgtds have open is whose, nobody knows.
TEST_CASE_METHOD(WithSharedVolume, "on Ceph: the end of one tgtd shuts out no client of another one") {
  const VolumeId volume = Make("v");
  const Grant a = Acquire(volume, kA), b = Acquire(volume, kB);
  REQUIRE(a.connection.portal != b.connection.portal);
  const auto goes_on = PlainInitiator::Login(b.connection);
  REQUIRE(goes_on.status() == absl::OkStatus());
  REQUIRE((*goes_on)->Write(0, 'b'));
  KillTgtd(*this, options.control_port + (a.connection.portal == options.portals.front() ? 0 : 1));
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK((*goes_on)->Write(1, 'b'));
}

// As a virtual machine's that migrates: the next node has it before the last one gives it up.
TEST_CASE_METHOD(OfOneTgtd, "on Ceph: a volume that is shared all the time gains no client with each move") {
  const VolumeId volume = Make("v");
  const auto pool = CephPool::Connect(options.ceph).value();
  const auto count = [&] {
    const auto record = ReadGatewayRecord(*pool, options.name);
    return record.ok() && record->has_value() ? (*record)->images.at(ImageOf(volume)).size() : 0;
  };
  std::unique_ptr<PlainInitiator> holds;
  for (int i = 0; i < 6; ++i) {
    const NodeId& next = i % 2 == 0 ? kA : kB;
    auto initiator = PlainInitiator::Login(Acquire(volume, next).connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    holds = *std::move(initiator);  // which ends the last one's session
    REQUIRE(holds->Write(0, 'a'));
    if (i > 0) Release(volume, i % 2 == 0 ? kB : kA);
    CHECK(Eventually([&] { return count() <= 2; }));
    REQUIRE(holds->Write(1, 'a'));  // by a client that was not shut out
  }
}

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: a volume goes on beside somebody who has its image open, and is not grown") {
  const VolumeId volume = Make("v");
  const auto initiator = Login(volume);
  REQUIRE(initiator->Write(0, 'a'));
  Stranger stranger(*this, volume);
  CHECK(stranger.IsNamed(cluster->volumes().ExpandVolume(volume, 32 << 20).status()));
  CHECK(initiator->Write(0, 'b'));
  Reopen();
  CHECK(initiator->Write(0, 'c'));
  CHECK_FALSE(NamedOf(*this, volume).contains(stranger.pool->address()));
  stranger.Close();
  CHECK(cluster->volumes().ExpandVolume(volume, 32 << 20).status() == absl::OkStatus());
  CHECK(Login(volume)->Write(0, 'd'));
  CHECK(stranger.CanWrite());
}

// As where the lock was removed to use the image elsewhere. tgtd's client is not seen then, and the other
// one is, just as if it were tgtd's.
TEST_CASE_METHOD(OnCeph,
                 "on Ceph: somebody who has an image open whose client is shut out is not taken for it") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const Connection connection = cluster->grants().ListGrants({volume, {}})->front().connection;
  const auto writes = [&] {
    const auto initiator = PlainInitiator::Login(connection);
    return initiator.ok() && (*initiator)->Write(0, 'b');
  };
  const std::set<ClientAddress> own = NamedOf(*this, volume);
  REQUIRE(own.size() == 1);
  const CapturedLog log(directory / "log");
  Stranger stranger(*this, volume);
  REQUIRE(stranger.pool->BlockClient(*own.begin(), absl::Minutes(10)) == absl::OkStatus());
  const std::string named = "is open elsewhere, by " + stranger.pool->address();
  CHECK(Eventually([&] { return absl::StrContains(log.Text(), named); }));
  Reopen();
  absl::SleepFor(absl::Seconds(3));  // in which it is tried to open it anew
  CHECK_FALSE(writes());
  CHECK(NamedOf(*this, volume) == own);
  stranger.Close();
  CHECK(Eventually(writes));
  CHECK(stranger.CanWrite());
}

TEST_CASE("gateway clients: who is seen in the place of one that was shut out is somebody else") {
  alignas(CephPool) static char unused[sizeof(CephPool)];
  GatewayClients clients(reinterpret_cast<const CephPool&>(unused), {{"lk/v", {"own"}}});
  const LunsOfImage found_open{.most = 1, .one_is_new = false};
  CHECK(absl::IsFailedPrecondition(clients.FindAlive("lk/v", {"stranger"}, found_open).status()));
  clients.NoteTakeover();
  CHECK(absl::IsFailedPrecondition(clients.FindAlive("lk/v", {"stranger"}, found_open).status()));
}

// By an agent that does not know which of them is whose.
TEST_CASE_METHOD(WithSharedVolume,
                 "on Ceph: a shared volume of which one client is shut out is opened anew for each node") {
  const VolumeId volume = Make("v");
  const std::vector<Connection> connections = {Acquire(volume, kA).connection,
                                               Acquire(volume, kB).connection};
  Reopen();
  const auto pool = ConnectToCeph();
  const std::set<ClientAddress> before = NamedOf(*this, volume);
  REQUIRE(before.size() == 2);
  REQUIRE(pool->BlockClient(*before.begin(), absl::Minutes(10)) == absl::OkStatus());
  CHECK(Eventually([&] {
    const std::set<ClientAddress> now = NamedOf(*this, volume);
    return now.size() == 2 && !now.contains(*before.begin()) && !now.contains(*before.rbegin());
  }));
  const std::set<ClientAddress> after = NamedOf(*this, volume);
  absl::SleepFor(absl::Seconds(3));  // in which it would be opened once more
  CHECK(NamedOf(*this, volume) == after);
  for (const Connection& connection : connections) {
    const auto initiator = PlainInitiator::Login(connection);
    CHECK((initiator.ok() && (*initiator)->Write(0, 'a')));
  }
}

TEST_CASE_METHOD(OnCeph, "on Ceph: after a takeover, too, no image is opened anew beside another program") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const auto pool = ConnectToCeph();
  cluster.reset();
  array.reset();
  const auto record = ReadGatewayRecord(*pool, options.name).value();
  GatewayRecord next = *record;
  next.holder = "another.boot";
  ++next.counter;
  REQUIRE(ReplaceGatewayRecord(*pool, options.name, record, next) == absl::OkStatus());
  REQUIRE(Open() == absl::OkStatus());
  cluster = Cluster();
  const Connection connection = cluster->grants().ListGrants({volume, {}})->front().connection;
  const auto writes = [&] {
    const auto initiator = PlainInitiator::Login(connection);
    return initiator.ok() && (*initiator)->Write(0, 'b');
  };
  REQUIRE(Eventually(writes));
  const std::set<ClientAddress> own = NamedOf(*this, volume);
  REQUIRE(own.size() == 1);
  Stranger stranger(*this, volume);
  REQUIRE(stranger.pool->BlockClient(*own.begin(), absl::Minutes(10)) == absl::OkStatus());
  absl::SleepFor(absl::Seconds(8));  // some looks
  CHECK_FALSE(writes());
  CHECK(NamedOf(*this, volume) == own);
  CHECK(stranger.CanWrite());
}

// Its kernel has one client for all the images that it has mapped.
TEST_CASE_METHOD(OfOneTgtd, "on Ceph: somebody who has had a shared volume's image open is not shut out") {
  const VolumeId volume = Make("v");
  const Grant a = Acquire(volume, kA);
  const GrantRequest next = {.volume = volume, .node = kB, .access = Access::kSharedWrite};
  Stranger stranger(*this, volume);
  CHECK(stranger.IsNamed(cluster->grants().AcquireGrant(next, absl::ZeroDuration()).status()));
  stranger.Close();
  Acquire(volume, kB);
  Release(volume, kB);
  Acquire(volume, kB);
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK(stranger.CanWrite());
  const auto goes_on = PlainInitiator::Login(a.connection);
  REQUIRE(goes_on.status() == absl::OkStatus());
  CHECK((*goes_on)->Write(1, 'a'));
}

// As many as there are LUNs, and one of them has ended: by two faults at once.
TEST_CASE_METHOD(OfOneTgtd, "on Ceph: a client that is not seen for a moment is not shut out") {
  const VolumeId volume = Make("v");
  const Grant a = Acquire(volume, kA);
  const auto goes_on = PlainInitiator::Login(a.connection);
  REQUIRE(goes_on.status() == absl::OkStatus());
  REQUIRE((*goes_on)->Write(0, 'a'));
  const std::set<ClientAddress> first = NamedOf(*this, volume);
  REQUIRE(first.size() == 1);
  Acquire(volume, kB);
  std::set<ClientAddress> others = NamedOf(*this, volume);
  others.erase(*first.begin());
  REQUIRE(others.size() == 1);
  Release(volume, kB);
  hidden = *first.begin();
  shown = *others.begin();
  list_for_real = Library().rbd_watchers_list;
  {
    const ReplacedCall list(Library().rbd_watchers_list, ListOther);
    Acquire(volume, kB);
  }
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK((*goes_on)->Write(1, 'a'));
}

}  // namespace lunkeeper::testing
