// Part of rbd_array_test: needs a Ceph. What becomes of clients that end while their image stays granted.

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/testing/lease_gateway.h"
#include "devices/array/tgt/testing/replaced_call.h"
#include "devices/array/tgt/testing/strangers.h"

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

// How often the list of refused clients is read.
std::atomic<int> lists = 0;
int CountLists(CephLibrary::Handle cluster, const char** command, size_t commands, const char* in,
               size_t in_size, char** out, size_t* out_size, char** text, size_t* text_size) {
  lists += absl::StrContains(command[0], "osd blocklist ls") ? 1 : 0;
  return command_for_real(cluster, command, commands, in, in_size, out, out_size, text, text_size);
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

// Also for the gateway after the next one, if that dies before it opens the image itself.
TEST_CASE_METHOD(WithClients,
                 "gateway lease: an image that was just being opened is named after a takeover") {
  REQUIRE(a.lease->RegisterImage("lk/j", {}) == absl::OkStatus());
  a.Die();
  Gateway b(array, "host-b");
  b.TakeAndServe();
  CHECK(b.Record().images == ImageClients{{"lk/j", {}}});
  CHECK(b.lease->clients().CheckOnlyOwn("lk/j", {"left"}) == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(b.lease->clients().CheckOnlyOwn("lk/i", {"left"})));
  CHECK(b.lease->ForgetClosed([] { return std::set<std::string>(); }) == absl::OkStatus());
  CHECK(b.Record().images.empty());
}

TEST_CASE_METHOD(WithClients,
                 "gateway lease: an image that tgtd ended on when it just opened it is named no more") {
  REQUIRE(a.lease->RegisterImage("lk/j", {}) == absl::OkStatus());
  REQUIRE(a.Record().images.contains("lk/j"));
  a.lease->clients().NoteEnded("lk/j", {});
  CHECK(Eventually([&] { return !a.Record().images.contains("lk/j"); }));
  CHECK(a.Record().images.contains("lk/i"));
  a.Die();
  Gateway b(array, "host-b");
  b.TakeAndServe();
  CHECK(absl::IsFailedPrecondition(b.lease->clients().CheckOnlyOwn("lk/j", {"stranger"})));
}

TEST_CASE_METHOD(WithClients, "gateway lease: a record that nobody could read is not written") {
  std::set<ClientAddress> many;
  for (int i = 0; i < 50'000; ++i) many.insert(absl::StrCat("127.0.0.1:0/", i));
  CHECK(absl::IsResourceExhausted(a.lease->RegisterImage("lk/j", many)));
  CHECK(a.Record().images.size() == 1);
  CHECK(a.lease->ConfirmHeld() == absl::OkStatus());
}

TEST_CASE_METHOD(WithClients, "gateway lease: whom Ceph refuses is read only when that may have changed") {
  const std::unique_ptr<CephPool> own = ConnectToCeph();
  REQUIRE(a.lease->RegisterImage("lk/j", {own->address()}) == absl::OkStatus());
  a.lease->clients().NoteEnded("lk/i", {kOther, tgtd->address()});
  REQUIRE(Eventually([&] { return Named().empty(); }));
  command_for_real = Library().rados_mon_command;
  const ReplacedCall command(Library().rados_mon_command, CountLists);
  const std::set<std::string> none, image = {"lk/j"};
  lists = 0;
  for (int i = 0; i < 5; ++i) CHECK(a.lease->clients().FindShutOut().value() == none);
  CHECK(lists <= 2);
  lists = 0;
  REQUIRE(a.pool->BlockClient(own->address(), absl::Minutes(10)) == absl::OkStatus());
  CHECK(a.lease->clients().FindShutOut().value() == image);
  CHECK(a.lease->clients().FindShutOut().value() == image);  // until it has ended
  CHECK(lists == 2);
  a.lease->clients().NoteEnded("lk/j", {own->address()});
  CHECK(a.lease->clients().FindShutOut().value() == none);
  CHECK(lists == 2);  // nobody is left
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
  for (const Connection& connection : connections) CHECK(CanWrite(connection, 0, 'a'));
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
  {
    const ShownAs shown(
        [&](const ClientAddress& client) { return first.contains(client) ? *others.begin() : client; });
    Acquire(volume, kB);
  }
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK((*goes_on)->Write(1, 'a'));
}

// Two nodes' clients are seen late, and in the place of one a client that a LUN of before had.
TEST_CASE_METHOD(OfOneTgtd,
                 "on Ceph: the end of a LUN shuts out no client of another one that was seen late") {
  const NodeId c("node-c.1");
  const VolumeId volume = Make("v");
  Acquire(volume, kA);
  const std::set<ClientAddress> first = NamedOf(*this, volume);
  Acquire(volume, c);
  std::set<ClientAddress> ended = NamedOf(*this, volume);
  ended.erase(*first.begin());
  REQUIRE(ended.size() == 1);
  Reopen();  // and nobody knows whose client is whose
  Release(volume, c);
  const auto try_acquire = [&](const NodeId& node) {
    const GrantRequest request = {.volume = volume, .node = node, .access = Access::kSharedWrite};
    return cluster->grants().AcquireGrant(request, absl::ZeroDuration()).ok();
  };
  std::set<ClientAddress> late;
  {
    const ShownAs shown([&](const ClientAddress& client) {
      if (!first.contains(client)) late.insert(client);
      return first.contains(client) ? client : "";
    });
    try_acquire(kB);
  }
  {
    const ShownAs shown([&](const ClientAddress& client) {
      return first.contains(client) || late.contains(client) ? client : *ended.begin();
    });
    try_acquire(c);
  }
  const Grant b = Acquire(volume, kB);
  Release(volume, c);
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  const auto goes_on = PlainInitiator::Login(b.connection);
  REQUIRE(goes_on.status() == absl::OkStatus());
  CHECK((*goes_on)->Write(0, 'b'));
}

}  // namespace lunkeeper::testing
