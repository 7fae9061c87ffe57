// Part of rbd_array_test: needs a Ceph.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/random.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/gateway_lease.h"

namespace lunkeeper::testing {
namespace {

constexpr absl::Duration kTakeover = absl::Seconds(4);

// A gateway as far as Ceph sees one.
class Gateway {
 public:
  Gateway(std::string array, const std::string& host, absl::Duration takeover_after = kTakeover)
      : options_{.array = std::move(array),
                 .holder = host + ".boot",
                 .host = host,
                 .takeover_after = takeover_after,
                 .on_lost = [this](const absl::Status&) { ++lost; }} {
    const char* const conf = std::getenv("LUNKEEPER_CEPH_CONF");
    const char* const user = std::getenv("LUNKEEPER_CEPH_USER");
    REQUIRE(conf != nullptr);
    const CephOptions ceph = {.pool = "lk", .conf = conf, .user = user == nullptr ? "admin" : user};
    auto connected = CephPool::Connect(ceph);
    REQUIRE(connected.status() == absl::OkStatus());
    pool = *std::move(connected);
  }
  // `stand_by`: as of the options.
  absl::Status Take(std::function<absl::Status(const absl::Status&)> stand_by = nullptr) {
    GatewayLeaseOptions options = options_;
    options.stand_by = std::move(stand_by);
    auto taken = GatewayLease::TakeArray(*pool, options);
    if (taken.ok()) lease = *std::move(taken);
    return taken.status();
  }
  // Stands by until it takes the array, or is to stop, on a thread of its own.
  std::jthread StandBy(absl::Status* taken) {
    return std::jthread([this, taken](const std::stop_token& stop) {
      *taken = Take([&](const absl::Status&) {
        ++seen;
        return stop.stop_requested() ? absl::CancelledError("stop") : absl::OkStatus();
      });
    });
  }
  // All of it, as far as one can without a second client.
  void TakeAndServe() {
    REQUIRE(Take() == absl::OkStatus());
    REQUIRE(lease->ShutOut() == absl::OkStatus());
    REQUIRE(lease->BeginServing(kCatalogue) == absl::OkStatus());
  }
  void Die() { lease.reset(); }
  GatewayRecord Record() const {
    const auto read = ReadGatewayRecord(*pool, options_.array);
    REQUIRE(read.status() == absl::OkStatus());
    REQUIRE(read->has_value());
    return **read;
  }
  // Takes the array from the gateway that has it, in the record alone.
  void WriteNextRecord() const {
    REQUIRE(Eventually([&] {  // beside renewals
      const GatewayRecord before = Record();
      GatewayRecord next = before;
      ++next.epoch;
      next.holder = options_.holder;
      return ReplaceGatewayRecord(*pool, options_.array, before, next).ok();
    }));
  }
  // Always the same object. An OSD refuses those who were shut out from the first operation on that a client
  // sends which knows it.
  bool CanWrite() const { return pool->WriteKey("lunkeeper.test." + options_.array, "k", "v").ok(); }

  inline static const ClientAddress kCatalogue = "127.0.0.1:0/4294967290";
  std::unique_ptr<CephPool> pool;
  std::unique_ptr<GatewayLease> lease;
  std::atomic<int> lost = 0, seen = 0;

 private:
  const GatewayLeaseOptions options_;
};

struct Leases {
  std::string array = "l" + RandomHexDigits().substr(0, 8);
};

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

// With a minute of silence to wait for, only one that does not wait takes it in time.
TEST_CASE_METHOD(Leases,
                 "gateway lease: an array that is given away is taken at once, and the giver shut out") {
  Gateway a(array, "host-a"), b(array, "host-b", absl::Minutes(1));
  a.TakeAndServe();
  const ClientAddress image = "127.0.0.1:0/4294967293";
  REQUIRE(a.lease->RegisterImage("lk/i", {image}) == absl::OkStatus());
  absl::Status taken;
  std::jthread stands_by = b.StandBy(&taken);
  REQUIRE(Eventually([&] { return b.seen > 0; }));
  REQUIRE(a.lease->ReleaseArray() == absl::OkStatus());
  CHECK(absl::IsUnavailable(a.lease->RegisterImage("lk/j", {image})));
  CHECK(absl::IsUnavailable(a.lease->ReleaseArray()));
  const auto successor = a.lease->AwaitSuccessor(absl::Now() + absl::Seconds(30));
  CHECK(successor.value_or("none") == "host-b");
  stands_by.join();
  REQUIRE(taken == absl::OkStatus());
  CHECK(!b.lease->tgtds_go_on());
  CHECK(absl::IsUnavailable(a.lease->ConfirmHeld()));
  CHECK(a.CanWrite());  // it may still have something in hand
  REQUIRE(b.lease->ShutOut() == absl::OkStatus());
  CHECK(b.CanWrite());
  CHECK(!a.CanWrite());
  for (const ClientAddress& client : {a.pool->address(), Gateway::kCatalogue, image})
    CHECK(b.lease->shut_out().contains(client));
  CHECK(a.lost == 0);
}

TEST_CASE_METHOD(Leases,
                 "gateway lease: the giver takes an array again that nobody has taken, and not at once") {
  Gateway a(array, "host-a"), again(array, "host-a");
  a.TakeAndServe();
  REQUIRE(a.lease->ReleaseArray() == absl::OkStatus());
  CHECK(absl::IsDeadlineExceeded(a.lease->AwaitSuccessor(absl::Now()).status()));
  const GatewayRecord given = again.Record();
  CHECK(ParseReleased(given) == "host-a.boot");
  const absl::Time began = absl::Now();
  REQUIRE(again.Take() == absl::OkStatus());
  CHECK(absl::Now() - began >= kTakeover);
  CHECK(again.Record().epoch == given.epoch + 1);
  CHECK(!again.lease->tgtds_go_on());
  CHECK(again.Record().unfenced.contains(a.pool->address()));
}

TEST_CASE_METHOD(Leases, "gateway lease: the giver stands by while another one takes the array") {
  Gateway a(array, "host-a"), again(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  REQUIRE(a.lease->ReleaseArray() == absl::OkStatus());
  absl::Status taken;
  std::jthread stands_by = again.StandBy(&taken);
  b.TakeAndServe();
  CHECK(Eventually([&] { return again.seen > 1; }));
  CHECK(b.lost == 0);
  CHECK(b.Record().holder == "host-b.boot");
}

TEST_CASE_METHOD(Leases, "gateway lease: an array that was taken meanwhile is not given away") {
  Gateway a(array, "host-a");
  a.TakeAndServe();
  const Gateway observer(array, "host-b");
  observer.WriteNextRecord();
  CHECK(absl::IsUnavailable(a.lease->ReleaseArray()));
  CHECK(Eventually([&] { return a.lost == 1; }));
  CHECK(observer.Record().holder == "host-b.boot");
}

TEST_CASE_METHOD(Leases, "gateway lease: of several that stand by one takes what is given away") {
  Gateway a(array, "host-a"), b(array, "host-b", absl::Minutes(1)), c(array, "host-c", absl::Minutes(1));
  a.TakeAndServe();
  absl::Status taken[2];
  std::jthread stand_by[] = {b.StandBy(&taken[0]), c.StandBy(&taken[1])};
  REQUIRE(Eventually([&] { return b.seen > 0 && c.seen > 0; }));
  REQUIRE(a.lease->ReleaseArray() == absl::OkStatus());
  CHECK(Eventually([&] { return b.Record().epoch == 2; }));
  for (std::jthread& each : stand_by) {
    each.request_stop();
    each.join();
  }
  CHECK(taken[0].ok() != taken[1].ok());
  CHECK(b.Record().epoch == 2);
}

TEST_CASE_METHOD(Leases, "gateway lease: who stands by is seen, and not who did") {
  Gateway a(array, "host-a", absl::Seconds(2)), b(array, "host-b");
  a.TakeAndServe();
  CHECK(a.lease->ListStandbys()->empty());
  absl::Status taken;
  std::jthread stands_by = b.StandBy(&taken);
  CHECK(Eventually([&] {
    return a.lease->ListStandbys().value_or(std::set<std::string>()) == std::set<std::string>{"host-b"};
  }));
  stands_by.request_stop();
  stands_by.join();
  CHECK(a.lease->ListStandbys()->empty());
  // One that was killed leaves its entry.
  REQUIRE(a.pool->WriteKey("lunkeeper." + array + ".standbys", "host-c.boot", "7 host-c") ==
          absl::OkStatus());
  CHECK(a.lease->ListStandbys()->empty());
}

}  // namespace lunkeeper::testing
