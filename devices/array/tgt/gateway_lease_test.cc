// Part of rbd_array_test: needs a Ceph.

#include <catch2/catch.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/testing/lease_gateway.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
namespace {

decltype(CephLibrary::rados_read) read_for_real;
int ReadSlowly(CephLibrary::Handle context, const char* object, char* contents, size_t most,
               uint64_t offset) {
  absl::SleepFor(absl::Milliseconds(200));
  return read_for_real(context, object, contents, most, offset);
}

}  // namespace

TEST_CASE_METHOD(Leases, "gateway lease: one that lives is left alone and named, a dead one is shut out") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  const absl::Status refused = b.Take();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "another agent serves it, on host host-a (epoch 1)"));
  a.Die();
  REQUIRE(b.Take() == absl::OkStatus());
  CHECK(!b.lease->tgtds_go_on());
  CHECK(a.CanWrite());
  REQUIRE(b.lease->ShutOut() == absl::OkStatus());
  CHECK(b.CanWrite());
  CHECK(!a.CanWrite());
  CHECK(b.Record().unfenced.contains(a.pool->address()));
  REQUIRE(b.lease->BeginServing(Gateway::kCatalogue) == absl::OkStatus());
  const GatewayRecord record = b.Record();
  CHECK(record.epoch == 2);
  CHECK(record.unfenced.empty());
  CHECK(record.clients == std::set<ClientAddress>{b.pool->address(), Gateway::kCatalogue});
}

TEST_CASE_METHOD(Leases, "gateway lease: one that stands by takes the array of one that dies meanwhile") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  int seen = 0;
  const absl::Status taken = b.Take([&](const absl::Status& lives) {
    CHECK(absl::StrContains(lives.message(), "another agent serves it, on host host-a (epoch 1)"));
    CHECK(a.lost == 0);
    if (++seen == 3) a.Die();
    return absl::OkStatus();
  });
  CHECK(taken == absl::OkStatus());
  CHECK(seen >= 3);
  CHECK(b.Record().epoch == 2);
  CHECK(b.Record().unfenced.contains(a.pool->address()));
}

TEST_CASE_METHOD(Leases, "gateway lease: one that stands by ends when it is told to") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  CHECK(absl::IsCancelled(b.Take([](const absl::Status&) { return absl::CancelledError("stop"); })));
  CHECK(a.Record().epoch == 1);
}

// It thaws beside a gateway that was frozen with it, and has not counted yet.
TEST_CASE_METHOD(Leases, "gateway lease: what one that stands by saw before it was frozen proves nothing") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  std::optional<absl::Time> thawed;
  const absl::Status taken = b.Take([&](const absl::Status&) {
    if (!thawed) {
      a.Die();
      absl::SleepFor(2 * kTakeover);
      thawed = absl::Now();
    }
    return absl::OkStatus();
  });
  REQUIRE(taken == absl::OkStatus());
  REQUIRE(thawed.has_value());
  CHECK(absl::Now() - *thawed >= kTakeover);  // by then one that lives has counted
}

// The cluster may be slow for the other gateway too.
TEST_CASE_METHOD(Leases, "gateway lease: looks that take long prove no silence") {
  Gateway a(array, "host-a"), b(array, "host-b", absl::Milliseconds(500));
  a.TakeAndServe();
  a.Die();
  read_for_real = Library().rados_read;
  {
    const ReplacedCall read(Library().rados_read, ReadSlowly);
    CHECK(absl::IsUnavailable(b.Take()));
  }
  CHECK(b.Record().holder == "host-a.boot");
}

TEST_CASE_METHOD(Leases, "gateway lease: of several that start at once one takes the array") {
  Gateway dead(array, "host-a");
  const bool was_served = GENERATE(false, true);
  if (was_served) dead.TakeAndServe();
  dead.Die();
  std::vector<std::unique_ptr<Gateway>> gateways;
  for (const char* const host : {"host-b", "host-c", "host-d", "host-e"})
    gateways.push_back(std::make_unique<Gateway>(array, host));
  std::vector<absl::Status> taken(gateways.size());
  std::vector<std::jthread> starts;
  for (size_t i = 0; i < gateways.size(); ++i)
    starts.emplace_back([&, i] { taken[i] = gateways[i]->Take(); });
  starts.clear();
  size_t holders = 0;
  for (const absl::Status& status : taken) {
    holders += status.ok() ? 1 : 0;
    CHECK((status.ok() || absl::IsFailedPrecondition(status)));
  }
  CHECK(holders == 1);
  for (const auto& gateway : gateways) CHECK(gateway->lost == 0);
}

TEST_CASE_METHOD(Leases,
                 "gateway lease: one that was taken over learns it, once, and registers nothing more") {
  Gateway a(array, "host-a");
  a.TakeAndServe();
  const Gateway observer(array, "host-b");
  observer.WriteNextRecord();
  CHECK(Eventually([&] { return a.lost > 0; }));
  CHECK(absl::IsUnavailable(a.lease->RegisterImage("lk/i", {"127.0.0.1:0/1"})));
  a.Die();
  CHECK(a.lost == 1);
  CHECK(observer.Record().images.empty());
}

TEST_CASE_METHOD(Leases, "gateway lease: whether it is held is asked of Ceph, and no clock decides it") {
  Gateway a(array, "host-a");
  a.TakeAndServe();
  CHECK(a.lease->ConfirmHeld() == absl::OkStatus());
  const Gateway observer(array, "host-b");
  observer.WriteNextRecord();
  CHECK(absl::IsUnavailable(a.lease->ConfirmHeld()));  // its last renewal is a moment ago
}

TEST_CASE_METHOD(Leases, "gateway lease: one that was shut out learns it, once") {
  Gateway a(array, "host-a");
  const Gateway other(array, "host-b");
  a.TakeAndServe();
  REQUIRE(other.pool->BlockClient(a.pool->address()) == absl::OkStatus());
  CHECK(Eventually([&] { return a.lost > 0; }));
  a.Die();
  CHECK(a.lost == 1);
}

TEST_CASE_METHOD(Leases, "gateway lease: one that stands by shuts out whom a removed record named") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  REQUIRE(a.lease->RegisterImage("lk/i", {"127.0.0.1:0/4294967289"}) == absl::OkStatus());
  bool removed = false;
  const absl::Status taken = b.Take([&](const absl::Status&) {
    if (std::exchange(removed, true)) return absl::OkStatus();
    const int done = b.pool->library().rados_remove(b.pool->context(), GatewayRecordName(array).c_str());
    return done == 0 ? absl::OkStatus() : absl::InternalError("not removed");
  });
  REQUIRE(taken == absl::OkStatus());
  CHECK(b.Record().epoch == 2);
  REQUIRE(b.lease->ShutOut() == absl::OkStatus());
  CHECK(b.lease->shut_out().contains(a.pool->address()));
  CHECK(b.lease->shut_out().contains("127.0.0.1:0/4294967289"));
  CHECK(b.CanWrite());
  CHECK(!a.CanWrite());
}

TEST_CASE_METHOD(Leases, "gateway lease: when takeovers are cut short, the next one shuts out all before") {
  Gateway a(array, "host-a"), b(array, "host-b"), c(array, "host-c"), d(array, "host-d");
  a.TakeAndServe();
  REQUIRE(a.lease->RegisterImage("lk/i", {"127.0.0.1:0/4294967291"}) == absl::OkStatus());
  a.Die();
  REQUIRE(b.Take() == absl::OkStatus());  // and nothing more
  b.Die();
  REQUIRE(c.Take() == absl::OkStatus());
  REQUIRE(c.lease->ShutOut() == absl::OkStatus());  // which the record does not say yet
  c.Die();
  d.TakeAndServe();
  for (const std::string& client :
       {a.pool->address(), b.pool->address(), c.pool->address(), ClientAddress("127.0.0.1:0/4294967291")})
    CHECK(d.lease->shut_out().contains(client));
  CHECK(d.CanWrite());
  for (const Gateway* const before : {&a, &b, &c}) CHECK(!before->CanWrite());
  CHECK(d.Record().images.empty());
  CHECK(d.Record().unfenced.empty());
}

TEST_CASE_METHOD(Leases, "gateway lease: the same folder goes on at once, with the tgtds it had") {
  const std::set<ClientAddress> clients = {"127.0.0.1:0/4294967292"};
  Gateway a(array, "host-a"), again(array, "host-a"), third(array, "host-a");
  a.TakeAndServe();
  REQUIRE(a.lease->RegisterImage("lk/i", clients) == absl::OkStatus());
  a.Die();
  REQUIRE(again.Take() == absl::OkStatus());
  CHECK(again.lease->tgtds_go_on());
  REQUIRE(again.lease->ShutOut() == absl::OkStatus());
  CHECK(again.lease->shut_out() == std::set<ClientAddress>{a.pool->address(), Gateway::kCatalogue});
  CHECK(again.CanWrite());
  CHECK(!a.CanWrite());
  CHECK(again.Record().images.at("lk/i") == clients);
  again.Die();
  // Cut short before it served, and no wonder after that either.
  REQUIRE(third.Take() == absl::OkStatus());
  CHECK(third.lease->tgtds_go_on());
}

TEST_CASE_METHOD(Leases, "gateway lease: after a takeover cut short, tgtds of before it do not go on") {
  Gateway a(array, "host-a"), b(array, "host-b"), b_again(array, "host-b");
  a.TakeAndServe();
  a.Die();
  REQUIRE(b.Take() == absl::OkStatus());
  b.Die();
  REQUIRE(b_again.Take() == absl::OkStatus());
  CHECK(!b_again.lease->tgtds_go_on());
}

TEST_CASE_METHOD(Leases, "gateway lease: clients of closed images are forgotten, and no others") {
  Gateway a(array, "host-a");
  a.TakeAndServe();
  const std::set<ClientAddress> one = {"127.0.0.1:0/1"}, two = {"127.0.0.1:0/2"};
  REQUIRE(a.lease->RegisterImage("lk/closed", one) == absl::OkStatus());
  REQUIRE(a.lease->RegisterImage("lk/open", one) == absl::OkStatus());
  REQUIRE(a.lease->RegisterImage("lk/reopened", one) == absl::OkStatus());
  REQUIRE(a.lease->ForgetClosed([&]() -> absl::StatusOr<std::set<std::string>> {
    if (const absl::Status opened = a.lease->RegisterImage("lk/reopened", two); !opened.ok()) return opened;
    return std::set<std::string>{"lk/open"};
  }) == absl::OkStatus());
  CHECK(a.Record().images ==
        std::map<std::string, std::set<ClientAddress>>{{"lk/open", one}, {"lk/reopened", two}});
}

}  // namespace lunkeeper::testing
