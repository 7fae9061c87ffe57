// What an informer says again to a caller who knows more, or something else.

#include "fencing/kube/informer.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "fencing/kube/testing/informer_rig.h"

namespace lunkeeper::kube {

using testing::Eventually;

TEST_CASE("what a caller doubts is listed anew without an alarm, and said again although it is the same") {
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {});
  InformerRig rig(script);
  REQUIRE(rig.told.Comes({{"db/p1", "5"}, {"db/p2", "6"}}));
  REQUIRE(rig.told.Lives("+"));
  script.SetList({Pod(1, 5), Pod(3, 7)}, 10);  // of which the watch says nothing
  rig.informer.ListAgain("db/p1");
  REQUIRE(Eventually([&] { return rig.told.changes() == 5; }));  // p1, p2; p3, p2 gone, p1 again
  CHECK(rig.told.Comes({{"db/p1", "5"}, {"db/p3", "7"}}));
  rig.informer.ListAgain("db/p9");  // that there is none is said as well
  CHECK(Eventually([&] { return rig.told.changes() == 6; }));
  CHECK(rig.told.Lives("+"));
  CHECK(script.lists() == 3);
}

// The caller knows that it is gone, the watch does not yet, and then it is there again as it was.
TEST_CASE("what a caller has removed is said again with the next list, although it is the same") {
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {});
  InformerRig rig(script);
  REQUIRE(rig.told.Comes({{"db/p1", "5"}, {"db/p2", "6"}}));
  REQUIRE(rig.told.Lives("+"));  // the end of the first list would say it again at once
  rig.informer.DeliverAgain("db/p1");
  CHECK(rig.told.changes() == 2);
  CHECK(script.lists() == 1);
  rig.informer.ListAgain("db/p2");  // for another one's sake
  CHECK(Eventually([&] { return rig.told.changes() == 4; }));
  CHECK(script.lists() == 2);
}

TEST_CASE("what a caller has removed is said no more once the watch has said that it is gone") {
  absl::Notification removed;
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {[&](Exchange& exchange) {
                  exchange.Begin();
                  removed.WaitForNotification();
                  exchange.Event("DELETED", Pod(1, 11));
                  exchange.Hang();
                }});
  InformerRig rig(script);
  REQUIRE(rig.told.Lives("+"));
  rig.informer.DeliverAgain("db/p1");
  removed.Notify();
  REQUIRE(rig.told.Comes({{"db/p2", "6"}}));
  const int before = rig.told.changes();
  script.SetList({Pod(2, 6)}, 11);
  rig.informer.ListAgain("db/p2");
  REQUIRE(Eventually([&] { return script.from().size() == 2; }));  // the list has ended
  CHECK(rig.told.changes() == before + 1);                         // p2
}

// The answer to a removal may come after the watch has brought it, and the next list weeks later. That one
// may be older than what a caller has made anew since.
TEST_CASE("of what was seen to be gone before its removal was noted, no list says again that it is gone") {
  Script script({Pod(1, 5), Pod(2, 6)}, 10, {[&](Exchange& exchange) {
                  exchange.Begin();
                  exchange.Event("DELETED", Pod(1, 11));
                  exchange.Hang();
                }});
  InformerRig rig(script);
  REQUIRE(rig.told.Comes({{"db/p2", "6"}}));
  const int before = rig.told.changes();
  rig.informer.DeliverAgain("db/p1");
  script.SetList({Pod(2, 6)}, 11);
  rig.informer.ListAgain("db/p2");
  REQUIRE(Eventually([&] { return script.from().size() == 2; }));  // the list has ended
  CHECK(rig.told.changes() == before + 1);                         // p2
}

TEST_CASE("what a caller doubts is listed until a list succeeds") {
  std::atomic<int> lists = 0;
  Told told;
  ApiFixture api([&](Exchange& exchange) {
    if (exchange.query.contains("watch")) {
      exchange.Begin();
      return exchange.Hang();
    }
    const int number = ++lists;
    if (number == 2 || number == 3) return exchange.Refuse(500, "InternalError", "not now");
    exchange.Reply(ListOf({Pod(1, number)}, 10));
  });
  const auto client = api.Client();
  Informer<std::string> informer(*client, {kPods}, told.Hooks(), kQuick);
  REQUIRE(told.Comes({{"db/p1", "1"}}));
  REQUIRE(told.Lives("+"));
  informer.ListAgain("db/p1");
  CHECK(told.Comes({{"db/p1", "4"}}));
  CHECK(told.Lives("+-+"));
}

}  // namespace lunkeeper::kube
