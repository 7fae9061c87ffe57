// Grants by tgtd's numbers and accounts, and as a list that is sent only when it has changed.
#include <signal.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "devices/array/tgt/sqlite.h"
#include "devices/array/tgt/target_number.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1");

TEST_CASE_METHOD(ClusterFixture,
                 "the account of a grant that is gone is deleted later, also by the next agent") {
  const TgtClient tgtd(options.control_port);
  const auto accounts = [&] { return tgtd.ListAccounts().value(); };
  const VolumeId volume = Make("v"), kept = Make("w");
  const auto gone = Acquire(volume, kA);
  REQUIRE(gone.ok());
  const auto live = Acquire(kept, kB);
  REQUIRE(live.ok());
  REQUIRE(accounts().size() == 5);  // each grant's, those by which its target proves itself, and nobody's
  REQUIRE(Release(volume, kA).ok());
  CHECK(Eventually([&] { return accounts().size() == 4; }));

  array.reset();
  Close();
  // As if the agent had been killed between a release and the deletion.
  const std::string of_gone = absl::StrCat("grant-", gone->generation);
  REQUIRE(tgtd.NewAccount({.user = of_gone, .secret = "of nobody any more"}).ok());
  REQUIRE(tgtd.NewAccount({.user = "somebody", .secret = "who is not ours"}).ok());
  REQUIRE(Open().ok());
  CHECK(Eventually([&] { return accounts().size() == 5; }));
  CHECK(std::ranges::count(accounts(), "somebody") == 1);
  CHECK(PlainInitiator::Login(live->connection).ok());
  Connection wrong = live->connection;
  wrong.chap.secret = "guessed";
  CHECK_FALSE(PlainInitiator::Login(wrong).ok());
}

// A cluster that scales has machines of ever new names.
TEST_CASE_METHOD(ClusterFixture, "the account of a machine goes once no target has used it for a while") {
  const TgtClient tgtd(options.control_port);
  const auto count = [&] { return tgtd.ListAccounts()->size() - 1; };  // nobody's
  const VolumeId volume = Make("v"), kept = Make("w");
  REQUIRE(Acquire(volume, kA).ok());
  const auto live = Acquire(kept, kB);
  REQUIRE(live.ok());
  REQUIRE(Release(volume, kA).ok());
  CHECK(Eventually([&] { return count() == 3; }));  // the machine may come again

  array.reset();
  Close();
  options.accounts_kept_for = absl::ZeroDuration();
  REQUIRE(Open().ok());
  array = Cluster();
  CHECK(Eventually([&] { return count() == 2; }));
  CHECK(PlainInitiator::Login(live->connection).ok());
  for (int i = 0; i < 2; ++i) {
    const auto again = Acquire(volume, kA);
    REQUIRE(again.ok());
    CHECK(count() == 4);
    CHECK(PlainInitiator::Login(again->connection).ok());
    REQUIRE(Release(volume, kA).ok());
    CHECK(Eventually([&] { return count() == 2; }));
  }
}

TEST_CASE_METHOD(ClusterFixture, "a machine that makes up instances leaves no account for each of them") {
  const TgtClient tgtd(options.control_port);
  const VolumeId volume = Make("v");
  for (int i = 0; i < 20; ++i) {
    const NodeId node(absl::StrCat("node-a.", absl::Hex(i, absl::kZeroPad16)));
    REQUIRE(Acquire(volume, node).ok());
    REQUIRE(Release(volume, node).ok());
  }
  CHECK(Eventually([&] { return tgtd.ListAccounts()->size() == 2; }));
}

TEST_CASE_METHOD(ClusterFixture, "tgtd's numbers begin anew after the last one, and pass over those in use") {
  const VolumeId first = Make("first");
  const auto old = Acquire(first, kA);
  REQUIRE(old.ok());
  REQUIRE(array->fences().OpenHeartbeatLun({.node = kA}).ok());
  array.reset();
  Close();
  {
    auto database = SqlDatabase::Open(options.pool_dir + "/catalogue.db", SqlDatabase::Mode::kReadWrite);
    REQUIRE((*database)->Change("UPDATE meta SET generation = ?1", {int64_t{kTargetNumbers} - 1}).ok());
  }
  REQUIRE(Open().ok());
  array = Cluster();
  std::set<int32_t> numbers = {TargetNumber(old->generation)};
  for (int i = 0; i < 3; ++i) {
    const auto grant = Acquire(Make(absl::StrCat("v", i)), kB);
    REQUIRE(grant.status() == absl::OkStatus());
    CHECK(numbers.insert(TargetNumber(grant->generation)).second);
    CHECK(TargetNumber(grant->generation) > 0);
    const auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.ok());
    const auto sessions = array->grants().ListSessions();
    REQUIRE(sessions->size() == 1);
    CHECK(sessions->front().volume == grant->volume);
  }
  CHECK(numbers.contains(static_cast<int32_t>(kTargetNumbers)));
  CHECK(PlainInitiator::Login(old->connection).ok());
  // And after a restart of tgtd too.
  REQUIRE(::kill(TgtdProcess(options.control_port), SIGKILL) == 0);
  CHECK(Eventually([&] { return PlainInitiator::Login(old->connection).ok(); }));
}

TEST_CASE_METHOD(ClusterFixture, "each change of grants changes their version, and so does a new agent") {
  std::set<std::string> seen;
  const auto changed = [&] { return seen.insert(array->grants().GrantsVersion().value()).second; };
  const VolumeId volume = Make("v"), other = Make("w");
  CHECK(changed());
  CHECK_FALSE(changed());
  REQUIRE(Acquire(volume, kA).ok());
  CHECK(changed());
  const auto holders = array->grants().ListGrants({.volume = {}, .node = {}, .holders_only = true});
  REQUIRE(holders->size() == 1);
  CHECK(holders->front().volume == volume);
  CHECK(holders->front().connection.chap.secret.empty());
  REQUIRE(Acquire(other, kB).ok());
  CHECK(changed());
  REQUIRE(array->volumes().ModifyVolume(other, {.max_iops = 200}).ok());
  CHECK(changed());
  const auto limited = array->grants().ListGrants({.volume = other, .node = {}, .holders_only = true});
  CHECK(limited->front().limits.iops == 200);
  REQUIRE(Release(volume, kA).ok());
  CHECK(changed());
  const Term term = *array->fences().BeginTerm("leader");
  REQUIRE(array->fences().FenceNode(term, {kB, {other}}).ok());
  CHECK(changed());
  array.reset();
  Close();
  REQUIRE(Open().ok());
  array = Cluster();
  CHECK(changed());
}

// The stale secret would open the new target; and a second later, when its account is deleted, any would.
TEST_CASE_METHOD(
    ClusterFixture,
    "a catalogue that was set back under a living tgtd gives no old account's secret to a grant") {
  const TgtClient tgtd(options.control_port);
  const auto first = Acquire(Make("v"), kA);
  REQUIRE(first.ok());
  const VolumeId other = Make("w");
  const std::string next = absl::StrCat("grant-", first->generation + 1);
  array.reset();
  Close();
  // What a grant of the lost future has left in a tgtd that was not ended.
  REQUIRE(tgtd.NewAccount({.user = next, .secret = "ofthelostfuture1"}).ok());
  REQUIRE(Open().ok());
  array = Cluster();
  const auto grant = Acquire(other, kB);
  REQUIRE(grant.ok());
  REQUIRE(grant->connection.chap.user == next);
  Connection stale = grant->connection;
  stale.chap.secret = "ofthelostfuture1";
  CHECK_FALSE(PlainInitiator::Login(stale).ok());
  CHECK(PlainInitiator::Login(grant->connection).ok());
  CHECK(PlainInitiator::Login(first->connection).ok());
  CHECK(std::ranges::count(tgtd.ListAccounts().value(), next) == 1);
}

}  // namespace
}  // namespace lunkeeper::testing
