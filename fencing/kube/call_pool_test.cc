// The client's connections: how many there are, and which a call takes.

#include "fencing/kube/call_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fencing/kube/testing/api_fixture.h"

namespace lunkeeper::kube {
namespace {

using testing::Eventually;

const ObjectRef kPooled{kPods, "db", "db-0"};

}  // namespace

TEST_CASE("a hundred deletes at once go over no more connections than allowed") {
  std::atomic<int> deleted = 0, at_once = 0, most_at_once = 0;
  ApiFixture api([&](Exchange& exchange) {
    const int now = ++at_once;
    for (int most = most_at_once; now > most && !most_at_once.compare_exchange_weak(most, now);) {
    }
    ++deleted;
    --at_once;
    exchange.Reply(Json::object());
  });
  KubeConfig config = api.Config();
  config.connections = 8;
  const auto client = *MakeKubeClient(config);
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 100; ++i) {
      threads.emplace_back([&, i] {
        failed +=
            !client->Delete({kPods, "db", absl::StrCat("db-", i)}, {.uid = "u"}, absl::ZeroDuration(), Soon())
                 .ok();
      });
    }
  }
  CHECK(failed == 0);
  CHECK(deleted == 100);
  CHECK(most_at_once <= 8);
  CHECK(api.connections() <= 8);
}

TEST_CASE("as many connections as allowed are opened beforehand, if that is wanted, and used in turn") {
  std::atomic<int> latest = 0, opened = 0;
  ApiFixture api([&](Exchange& exchange) {
    if (exchange.path == "/version") {
      exchange.Reply(Json::object());
      ++opened;
      return;
    }
    latest = exchange.connection;
    exchange.Reply(Object("db", "db-0", 5));
  });
  KubeConfig config = api.Config();
  config.connections = 3;
  config.open_all = true;
  const auto client = *MakeKubeClient(config);
  REQUIRE(Eventually([&] { return opened == 3; }));
  std::vector<int> used;
  const auto get = [&] {
    REQUIRE(client->Get(kPooled, Soon()).ok());
    used.push_back(latest);
  };
  REQUIRE(Eventually([&] {  // the last one may still be on its way into the pool
    get();
    return used.size() >= 3 && std::set(used.end() - 3, used.end()) == std::set{1, 2, 3};
  }));
  for (int i = 0; i < 3; ++i) get();
  CHECK(std::equal(used.end() - 3, used.end(), used.end() - 6));
  CHECK(api.connections() == 3);
  api.CutAll();
  CHECK(Eventually([&] { return client->Get(kPooled, Soon()).ok() && api.connections() == 6; }));
}

TEST_CASE("calls use what is open when the server takes no more connections") {
  ApiFixture api([&](Exchange& exchange) {
    if (exchange.connection > 2) return exchange.Hang();
    exchange.Reply(Object("db", "db-0", 5));
  });
  KubeConfig config = api.Config();
  config.connections = 8;
  config.open_all = true;
  const auto client = *MakeKubeClient(config);
  REQUIRE(Eventually([&] { return api.connections() == 3; }));
  for (int i = 0; i < 20; ++i) CHECK(client->Get(kPooled, Soon(absl::Seconds(2))).ok());
}

// As where one of several servers behind an address hangs.
TEST_CASE("a connection that does not answer while others do takes the others with it that may be like it") {
  std::atomic<bool> hangs = false;
  std::atomic<int> hung = 0, latest = 0, opened = 0;
  std::set<int> hanging;  // set before `hangs`
  ApiFixture api([&](Exchange& exchange) {
    latest = exchange.connection;
    if (hangs && hanging.contains(exchange.connection)) return (void)++hung, exchange.Hang();
    exchange.Reply(Object("db", "db-0", 5));
    if (exchange.path == "/version") ++opened;
  });
  KubeConfig config = api.Config();
  config.connections = 9;
  config.open_all = true;
  const auto client = *MakeKubeClient(config);
  std::vector<int> used;
  REQUIRE(Eventually([&] {  // all are in the pool, in an order that stays
    CHECK(client->Get(kPooled, Soon()).ok());
    used.push_back(latest);
    return used.size() >= 18 && std::set(used.end() - 9, used.end()).size() == 9 &&
           std::equal(used.end() - 9, used.end(), used.end() - 18);
  }));
  hanging = {used[used.size() - 7], used[used.size() - 4], used[used.size() - 1]};
  hangs = true;
  int failed = 0;
  std::jthread waits([&] {  // until a connection hangs
    while (hung == 0) client->Get(kPooled, Soon(absl::Milliseconds(1200))).IgnoreError();
  });
  REQUIRE(Eventually([&] { return hung == 1; }));
  // Answered meanwhile, on the next two connections.
  CHECK(client->Get(kPooled, Soon()).ok());
  waits.join();
  for (int i = 0; i < 30; ++i) failed += !client->Get(kPooled, Soon(absl::Milliseconds(1200))).ok();
  CHECK(failed == 0);
  CHECK(hung == 1);
  CHECK(Eventually([&] { return opened >= 15; }));
}

TEST_CASE("a server that takes a connection and hangs is tried once more, where another one may answer") {
  ApiFixture api([](Exchange& exchange) { exchange.Reply(Object("db", "db-0", 5)); });
  api.IgnoreConnection(1);
  const auto client = *MakeKubeClient(api.Config());
  CHECK(client->Get(kPooled, Soon(absl::Seconds(10))).ok());
  CHECK(api.connections() == 2);
}

TEST_CASE("calls that wait for a connection end at their deadline, or when asked to") {
  std::atomic<bool> asked = false;
  ApiFixture api([&](Exchange& exchange) {
    asked = true;
    exchange.Hang();
  });
  KubeConfig config = api.Config();
  config.connections = 1;
  const auto client = *MakeKubeClient(config);
  std::stop_source stop;
  std::jthread first([&] {
    client->Get(kPooled, {absl::Now() + absl::Minutes(1), stop.get_token()}).IgnoreError();
  });
  REQUIRE(Eventually([&] { return asked.load(); }));
  const absl::Status waited = client->Get(kPooled, Soon(absl::Milliseconds(200))).status();
  CHECK(absl::IsDeadlineExceeded(waited));
  CHECK(absl::StrContains(std::string(waited.message()), "were busy"));
  std::jthread stopper([&] { stop.request_stop(); });
  CHECK(absl::IsCancelled(client->Get(kPooled, {absl::Now() + absl::Minutes(1), stop.get_token()}).status()));
}

}  // namespace lunkeeper::kube
