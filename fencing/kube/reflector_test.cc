#include "fencing/kube/reflector.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/kube/testing/informer_rig.h"

namespace lunkeeper::kube {
namespace {

using testing::Eventually;

}  // namespace

TEST_CASE("what exists is told, then what changes") {
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {[](Exchange& exchange) {
                  exchange.Begin();
                  exchange.Event("ADDED", Pod(3, 11));
                  exchange.Event("MODIFIED", Pod(1, 12));
                  exchange.Event("DELETED", Pod(2, 13));
                  exchange.Event("BOOKMARK", Bookmark(20));
                  exchange.Hang();
                }});
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "12"}, {"db/p3", "11"}}));
  CHECK(rig.told.Lives("+"));
  CHECK(script.from() == std::vector<std::string>{"10"});
}

TEST_CASE("what the caller does not care for is not kept, and leaves when it stops being cared for") {
  Json hidden = Pod(1, 7);
  hidden["hidden"] = true;
  Script script({hidden, Pod(2, 6)}, 10, {[&](Exchange& exchange) {
                  exchange.Begin();
                  exchange.Event("MODIFIED", Pod(1, 11));
                  Json now_hidden = Pod(2, 12);
                  now_hidden["hidden"] = true;
                  exchange.Event("MODIFIED", now_hidden);
                  exchange.Hang();
                }});
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "11"}}));
  CHECK(rig.told.changes() == 3);  // p2, p1, p2 gone
}

TEST_CASE("a watch that ends in order goes on where it was, and nobody is alarmed") {
  Script* its = nullptr;
  Script script({Pod(1, 5)}, 10,
                {[&](Exchange& exchange) {
                   its->SetList({Pod(1, 11)}, 17);
                   exchange.Begin();
                   exchange.Event("MODIFIED", Pod(1, 11));
                   exchange.Event("BOOKMARK", Bookmark(17));
                   exchange.End();
                 },
                 [](Exchange& exchange) {
                   exchange.Begin();
                   exchange.Event("MODIFIED", Pod(1, 18));
                   exchange.Hang();
                 }});
  its = &script;
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "18"}}));
  CHECK(rig.told.Lives("+"));
  CHECK(script.from() == std::vector<std::string>{"10", "17"});
  CHECK(script.lists() == 1);
}

TEST_CASE("a watch that is cut in the middle of an event loses nothing and lists nothing") {
  Script script(
      {Pod(1, 5)}, 10,
      {[](Exchange& exchange) {
         exchange.Begin();
         exchange.Event("MODIFIED", Pod(1, 11));
         exchange.Chunk(R"({"type":"MODIFIED","object":{"metadata":{"name":"p1","resourceVersion":"1)");
         exchange.Cut();
       },
       [](Exchange& exchange) { exchange.Cut(); },  // not even a head
       [](Exchange& exchange) { exchange.Refuse(500, "InternalError", "not now"); },
       [](Exchange& exchange) {
         exchange.Begin();
         const std::string event = ToText({{"type", "MODIFIED"}, {"object", Pod(1, 12)}});
         for (const char c : event) exchange.Chunk(std::string(1, c));  // an event in many chunks
         exchange.Hang();
       }});
  InformerRig rig(script);
  script.SetList({Pod(1, 12)}, 20);
  CHECK(rig.told.Comes({{"db/p1", "12"}}));
  CHECK(rig.told.Lives("+-+"));
}

TEST_CASE("versions that are no longer kept lead to a new list, by status or by event") {
  const bool by_event = GENERATE(true, false);
  Script* its = nullptr;
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {[&](Exchange& exchange) {
                  its->SetList({Pod(1, 30)}, 31);  // p2 went unseen
                  if (!by_event) return exchange.Refuse(410, "Expired", "too old resource version");
                  exchange.Begin();
                  exchange.Event("ERROR", {{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}});
                  exchange.End();
                }});
  its = &script;
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "30"}}));
  CHECK(rig.told.Lives(by_event ? "+-+" : "+"));
  CHECK(script.lists() == 2);
  CHECK(Eventually([&] { return script.from() == std::vector<std::string>{"10", "31"}; }));
}

TEST_CASE("garbage in a watch leads to a new list") {
  const std::string garbage =
      GENERATE("{\"type\":}", "<html>", "{\"type\":\"ADDED\",\"object\":{}}", "{\"a\":\"\xff\"}");
  Script* its = nullptr;
  Script script({Pod(1, 5)}, 10, {[&](Exchange& exchange) {
                  its->SetList({Pod(1, 30)}, 31);
                  exchange.Begin();
                  exchange.Chunk(garbage + "\n");
                  exchange.Hang();
                }});
  its = &script;
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "30"}}));
  CHECK(script.lists() == 2);
}

TEST_CASE("a watch on which nothing comes until its time is up is a dead connection") {
  Script script({Pod(1, 5)}, 10,
                {[](Exchange& exchange) {
                   exchange.Begin();
                   exchange.Hang();
                 },
                 [](Exchange& exchange) {
                   exchange.Begin();
                   exchange.Event("MODIFIED", Pod(1, 11));
                   exchange.Hang();
                 }});
  WatchTimes times = kQuick;
  times.watch = absl::Milliseconds(300);
  InformerRig rig(script, times);
  CHECK(rig.told.Comes({{"db/p1", "11"}}));
}

TEST_CASE("an API server restored from an older copy is believed") {
  Script* its = nullptr;
  Script script({Pod(1, 500), Pod(2, 600)}, 1000, {[&](Exchange& exchange) {
                  its->SetList({Pod(1, 70)}, 80);
                  exchange.Begin();
                  exchange.End();
                }});
  its = &script;
  InformerRig rig(script);
  CHECK(rig.told.Comes({{"db/p1", "70"}}));
  CHECK(Eventually([&] { return script.from() == std::vector<std::string>{"1000", "80"}; }));
}

TEST_CASE("a list that breaks off makes nothing disappear") {
  std::atomic<int> lists = 0;
  Told told;
  ApiFixture api([&](Exchange& exchange) {
    if (exchange.query.contains("watch")) {
      if (lists >= 4) {
        exchange.Begin();
        return exchange.Hang();
      }
      return exchange.Refuse(410, "Expired", "too old");
    }
    switch (++lists) {
      case 1:
        return exchange.Reply(ListOf({Pod(1, 5), Pod(2, 6)}, 10));
      case 2:  // its second page is no longer kept
        return exchange.Reply(ListOf({Pod(1, 7)}, 11, "second"));
      case 3:
        return exchange.Refuse(410, "Expired", "the continue token is too old");
      default:
        return exchange.Reply(ListOf({Pod(1, 7), Pod(2, 6)}, 12));
    }
  });
  const auto client = api.Client();
  Informer<std::string> informer(*client, {kPods}, told.Hooks(), kQuick);
  CHECK(told.Comes({{"db/p1", "7"}, {"db/p2", "6"}}));
  CHECK(told.Lives("+"));
  CHECK(told.changes() == 3);  // p1, p2, p1
}

TEST_CASE("a server that ends each watch at once is not asked without a pause") {
  Script script({Pod(1, 5)}, 10, std::vector<Script::Watch>(5000, [](Exchange& exchange) {
                  exchange.Begin();
                  exchange.End();
                }));
  InformerRig rig(script,
                  {absl::Seconds(30), absl::Seconds(20), absl::Milliseconds(50), absl::Milliseconds(100)});
  REQUIRE(rig.told.Lives("+"));
  const absl::Time start = absl::Now();
  REQUIRE(Eventually([&] { return script.from().size() >= 8; }));
  CHECK(absl::Now() - start > absl::Milliseconds(150));
}

TEST_CASE("a reflector ends within moments whatever it is doing") {
  const std::string response = GENERATE("listing", "opening", "watching", "pausing");
  std::atomic<bool> there = false;
  Told told;
  ApiFixture api([&](Exchange& exchange) {
    const bool watch = exchange.query.contains("watch");
    if (response == "pausing") {
      exchange.Refuse(403, "Forbidden", "no");
      there = true;
      return;
    }
    if (!watch && response != "listing") return exchange.Reply(ListOf({}, 1));
    if (response == "watching") exchange.Begin();
    there = true;
    exchange.Hang();
  });
  const auto client = api.Client();
  absl::Time start;
  {
    Informer<std::string> informer(*client, {kPods}, told.Hooks(),
                                   {absl::Minutes(5), absl::Minutes(5), absl::Minutes(5), absl::Minutes(5)});
    REQUIRE(Eventually([&] { return there.load(); }));
    start = absl::Now();
  }
  CHECK(absl::Now() - start < absl::Seconds(20));
}

}  // namespace lunkeeper::kube
