// Which volume is set aside, by the marks that workers leave when they die.

#include "devices/datapath/crash_history.h"

#include <catch2/catch.hpp>
#include <vector>

#include "devices/datapath/control.pb.h"
#include "devices/iscsi/lun.h"

namespace lunkeeper {
namespace {

// What workers leave in the shared memory when they die.
struct Marks {
  Marks() {
    for (const char* name : {"a", "b", "c"}) {
      datapath::Attach options;
      options.set_volume(name);
      volumes.push_back(*table.AddVolume(options));
    }
  }
  SupervisedVolume* Crash(std::vector<SlotWork> marks, std::chrono::seconds later = std::chrono::seconds(1)) {
    for (size_t i = 0; i < marks.size(); ++i) table.SlotOf(*volumes[i]).work = marks[i];
    return history.CountCrash(table, now += later);
  }
  SharedMemory memory = *SharedMemory::Create();
  VolumeTable table{memory.state()};
  std::vector<SupervisedVolume*> volumes;
  CrashHistory history;
  CrashHistory::Clock::time_point now;
};

constexpr auto kNone = SlotWork::kNone;
constexpr auto kUnderWay = SlotWork::kUnderWay;
constexpr auto kCrashed = SlotWork::kCrashed;

TEST_CASE("the volume that a thread crashed on is the one, whatever other threads worked on") {
  Marks marks;
  for (int crash = 1; crash < CrashHistory::kMostCrashes; ++crash) {
    CHECK(marks.Crash({kUnderWay, kCrashed, kUnderWay}) == nullptr);
    CHECK(marks.Crash({kUnderWay, kNone, kCrashed}) == nullptr);  // two that are poisoned, by turns
  }
  CHECK(marks.Crash({kUnderWay, kNone, kCrashed}) == marks.volumes[2]);
  CHECK(marks.Crash({kUnderWay, kCrashed, kNone}) == marks.volumes[1]);
  CHECK(marks.Crash({kUnderWay, kCrashed, kNone}) == nullptr);  // it begins anew
}

TEST_CASE("a death that no thread marked as its crash counts against nobody") {
  Marks marks;
  for (int death = 0; death < 20; ++death) {
    CHECK(marks.Crash({kNone, kNone, kNone}) == nullptr);
    // As older workers marked what they worked on when they were killed.
    CHECK(marks.Crash({kUnderWay, kUnderWay, kNone}) == nullptr);
    CHECK(marks.Crash({kNone, kUnderWay, kNone}) == nullptr);
  }
}

TEST_CASE("a volume that works well between its crashes begins anew each time") {
  Marks marks;
  LunState& lun = marks.table.SlotOf(*marks.volumes[0]).lun;
  for (std::atomic<uint64_t>* counter : {&lun.reads, &lun.writes, &lun.flushes}) {
    for (int crash = 0; crash < 7; ++crash) {
      *counter += CrashHistory::kQueueDepth + 1;
      CHECK(marks.Crash({kCrashed, kNone, kNone}) == nullptr);
    }
  }
}

// Between two crashes its other requests are answered, so it always seems to work well.
TEST_CASE("a request that crashes every worker is found out on a busy volume, too") {
  Marks marks;
  LunState& lun = marks.table.SlotOf(*marks.volumes[0]).lun;
  for (int crash = 1; crash < CrashHistory::kMostInAll; ++crash) {
    lun.writes += 100 * CrashHistory::kQueueDepth;
    REQUIRE(marks.Crash({kCrashed, kUnderWay, kNone}) == nullptr);
  }
  lun.writes += 100 * CrashHistory::kQueueDepth;
  CHECK(marks.Crash({kCrashed, kUnderWay, kNone}) == marks.volumes[0]);
}

TEST_CASE("a volume that is attached anew begins anew") {
  Marks marks;
  LunState& lun = marks.table.SlotOf(*marks.volumes[0]).lun;
  for (int crash = 0; crash < 2 * CrashHistory::kMostInAll; ++crash) {
    lun.writes = crash % 2 == 0 ? 1000 : 0;
    CHECK(marks.Crash({kCrashed, kNone, kNone}) == nullptr);
  }
}

TEST_CASE("what was under way beside the request that crashes is no progress") {
  CHECK(CrashHistory::kQueueDepth == LunOptions{}.queue_depth);
  Marks marks;
  LunState& lun = marks.table.SlotOf(*marks.volumes[0]).lun;
  for (int crash = 1; crash < CrashHistory::kMostCrashes; ++crash) {
    lun.writes += CrashHistory::kQueueDepth / 2;
    lun.reads += CrashHistory::kQueueDepth / 2;
    CHECK(marks.Crash({kCrashed, kNone, kNone}) == nullptr);
  }
  CHECK(marks.Crash({kCrashed, kNone, kNone}) == marks.volumes[0]);
}

TEST_CASE("a crash every minute or so never adds up") {
  Marks marks;
  for (int crash = 0; crash < 20; ++crash) {
    CHECK(marks.Crash({kCrashed, kNone, kNone}, std::chrono::seconds(61)) == nullptr);
  }
}

TEST_CASE("crashes long ago do not count") {
  Marks marks;
  for (int crash = 0; crash < 20; ++crash) {
    CHECK(marks.Crash({kCrashed, kNone, kNone}, CrashHistory::kForgottenAfter + std::chrono::seconds(1)) ==
          nullptr);
  }
}

}  // namespace
}  // namespace lunkeeper
