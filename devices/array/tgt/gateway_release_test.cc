// Part of rbd_array_test: needs a Ceph. Arrays that are given away, and who stands by for them.

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/testing/lease_gateway.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
namespace {

// Where the cluster has lost the disks of the list of standbys: no write to it is answered.
std::atomic<bool> is_lost = false;
decltype(CephLibrary::rados_write_op_operate) real_operate;
decltype(CephLibrary::rados_aio_write_op_operate) real_begin;
bool IsLost(const char* object) { return is_lost && absl::EndsWith(object, ".standbys"); }
int OperateUnlessLost(void* op, void* context, const char* object, time_t* changed, int flags) {
  while (IsLost(object)) absl::SleepFor(absl::Milliseconds(10));
  return real_operate(op, context, object, changed, flags);
}
int BeginUnlessLost(void* op, void* context, void* completion, const char* object, time_t* changed,
                    int flags) {
  return IsLost(object) ? 0 : real_begin(op, context, completion, object, changed, flags);
}

GatewayState StateOf(Gateway& gateway) {
  gateway.lease->times().NoteServing();
  return *gateway.lease->times().FindState();
}

}  // namespace

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
  const auto successor = a.lease->AwaitSuccessor(absl::Seconds(30));
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
  CHECK(StateOf(a).change == GatewayChange::kFirst);
  const GatewayState state = StateOf(b);
  CHECK(state.change == GatewayChange::kHandover);
  CHECK(state.host == "host-b");
  CHECK(state.before == "host-a");
  CHECK(state.epoch == 2);
  CHECK(state.phases.empty());
}

TEST_CASE_METHOD(Leases, "gateway lease: how a gateway came to have the array is known once it serves") {
  Gateway a(array, "host-a"), again(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  CHECK(!a.lease->times().FindState());
  a.Die();
  again.TakeAndServe();
  CHECK(StateOf(again).change == GatewayChange::kRestart);
  again.Die();
  b.TakeAndServe();
  b.lease->times().EndPhase("shut_out");
  const GatewayState state = StateOf(b);
  CHECK(state.change == GatewayChange::kTakeover);
  CHECK(state.before == "host-a");
  CHECK(state.epoch == 3);
  REQUIRE(state.phases.size() == 2);
  CHECK(state.phases[0].name == "silence");
  CHECK(state.phases[0].took >= kTakeover);
  CHECK(state.phases[1].name == "shut_out");
}

TEST_CASE_METHOD(Leases,
                 "gateway lease: the giver takes an array again that nobody has taken, and not at once") {
  Gateway a(array, "host-a"), again(array, "host-a");
  a.TakeAndServe();
  REQUIRE(a.lease->ReleaseArray() == absl::OkStatus());
  CHECK(absl::IsDeadlineExceeded(a.lease->AwaitSuccessor(absl::ZeroDuration()).status()));
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

TEST_CASE_METHOD(Leases, "gateway lease: the look for those that stand by ends when nobody waits for it") {
  Gateway a(array, "host-a", absl::Minutes(1));
  a.TakeAndServe();
  int asked = 0;
  const auto found = a.lease->ListStandbys([&asked] { return ++asked > 2; });
  CHECK(absl::IsCancelled(found.status()));
  CHECK(asked == 3);
}

TEST_CASE_METHOD(Leases, "gateway lease: the list of those that stand by holds up no takeover") {
  Gateway a(array, "host-a"), b(array, "host-b");
  a.TakeAndServe();
  real_operate = Library().rados_write_op_operate, real_begin = Library().rados_aio_write_op_operate;
  const ReplacedCall operate(Library().rados_write_op_operate, OperateUnlessLost);
  const ReplacedCall begin(Library().rados_aio_write_op_operate, BeginUnlessLost);
  is_lost = true;
  absl::Status taken;
  std::jthread stands_by = b.StandBy(&taken);
  CHECK(Eventually([&] { return b.seen > 1; }));
  a.Die();
  CHECK(Eventually([&] { return b.Record().epoch == 2; }));
  is_lost = false;
  stands_by.join();
  CHECK(taken == absl::OkStatus());
}

// Else its supervisor, which starts it again and again, would keep the array from gateways that can serve.
TEST_CASE_METHOD(Leases, "gateway lease: an array that was taken, and is not served, is given away") {
  Gateway a(array, "host-a"), b(array, "host-b"), c(array, "host-c", absl::Minutes(1));
  a.TakeAndServe();
  a.Die();
  b.TakeAndServe();
  b.lease->ReleaseUnlessServed();
  const bool serves = GENERATE(false, true);
  if (serves) b.lease->NoteServed();
  b.Die();
  CHECK(ParseReleased(c.Record()) == (serves ? "" : "host-b.boot"));
  if (serves) return;
  c.TakeAndServe();
  CHECK(c.lease->shut_out() == std::set<ClientAddress>{b.pool->address(), Gateway::kCatalogue});
}

TEST_CASE_METHOD(Leases, "gateway lease: who gives away what it cannot serve takes it like a stranger") {
  Gateway a(array, "host-a"), again(array, "host-a", kTakeover, /*gives_away=*/true);
  a.TakeAndServe();
  a.Die();
  REQUIRE(again.Take() == absl::OkStatus());
  CHECK_FALSE(again.lease->tgtds_go_on());
  CHECK(again.Record().epoch == 2);
  CHECK(again.Record().unfenced.contains(a.pool->address()));
}

TEST_CASE_METHOD(Leases, "gateway lease: one that stands by takes what is given away by a start") {
  Gateway a(array, "host-a"), again(array, "host-a", kTakeover, /*gives_away=*/true),
      b(array, "host-b", absl::Minutes(1));
  a.TakeAndServe();
  absl::Status taken[2];
  std::jthread stands_by = b.StandBy(&taken[0]);
  REQUIRE(Eventually([&] { return b.seen > 0; }));
  a.Die();
  std::jthread crashed = again.StandBy(&taken[1]);
  REQUIRE(Eventually([&] { return b.Record().holder == "host-b.boot"; }));
  stands_by.join();
  REQUIRE(taken[0] == absl::OkStatus());
  REQUIRE(b.lease->ShutOut() == absl::OkStatus());
  CHECK(b.lease->shut_out().contains(a.pool->address()));
  CHECK(b.CanWrite());
  CHECK_FALSE(a.CanWrite());
  CHECK(Eventually([&] { return again.seen > 0; }));
  CHECK(b.lost == 0);
}

}  // namespace lunkeeper::testing
