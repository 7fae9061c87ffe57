#include "devices/array/tgt/connection_history.h"

#include <catch2/catch.hpp>
#include <map>

namespace lunkeeper {
namespace {

constexpr uint64_t kNode = 1, kStranger = 2, kOther = 3;
constexpr std::chrono::seconds kPing(5);  // of a node that does nothing else

// Looks each second, at connections that take so many bytes more between some of them.
struct Looks {
  void Answer(uint64_t cookie, uint64_t bytes) { answered[cookie] += bytes; }
  void Look() {
    history.BeginLook(now += std::chrono::seconds(1));
    standing.clear();
    for (const auto& [cookie, bytes] : answered) standing[cookie] = history.NoteConnection(cookie, bytes);
    history.EndLook();
  }
  // While the node sends nothing but its pings; `each_second` beside.
  template <class Work>
  void PassTime(std::chrono::seconds length, Work each_second) {
    for (std::chrono::seconds at(0); at < length; at += std::chrono::seconds(1)) {
      if (at % kPing == std::chrono::seconds(0)) Answer(kNode, 48);
      each_second();
      Look();
    }
  }
  void PassTime(std::chrono::seconds length) {
    PassTime(length, [] {});
  }

  ConnectionHistory history;
  ConnectionHistory::SteadyTime now{std::chrono::hours(1)};
  std::map<uint64_t, uint64_t> answered;  // bytes, by cookie
  std::map<uint64_t, Standing> standing;
};

TEST_CASE_METHOD(Looks, "a connection that is answered much and often overtakes no older one of a node") {
  PassTime(kPing);
  PassTime(std::chrono::minutes(5), [&] {
    Answer(kStranger, 8000);
    if (standing.contains(kStranger)) REQUIRE(standing[kNode] > standing[kStranger]);
  });
}

TEST_CASE_METHOD(Looks, "one that was answered once gives way to a session that is new") {
  Answer(kStranger, 100'000);
  PassTime(3 * ConnectionHistory::kPeriod);
  Answer(kOther, 48);
  Look();
  CHECK(standing[kOther] > standing[kStranger]);
}

TEST_CASE_METHOD(Looks, "one that was never answered is not lively, however old") {
  Answer(kStranger, 0);
  PassTime(3 * ConnectionHistory::kPeriod);
  CHECK_FALSE(standing[kStranger].lively);
  Answer(kOther, 1);
  Look();
  CHECK(standing[kOther] > standing[kStranger]);
}

TEST_CASE_METHOD(Looks, "a tgtd that answers nobody for a while takes no standing from an older one") {
  PassTime(6 * ConnectionHistory::kPeriod);
  Answer(kStranger, 8000);
  Look();
  for (int i = 0; i < 60; ++i) Look();
  CHECK_FALSE(standing[kNode].lively);
  Answer(kNode, 48);
  Answer(kStranger, 8000);
  Look();
  CHECK(standing[kNode] > standing[kStranger]);
}

TEST_CASE_METHOD(Looks, "of two that are answered alike the older one stands better") {
  Answer(kNode, 48);
  Look();
  Answer(kOther, 48);
  Look();
  CHECK(standing[kNode].periods == standing[kOther].periods);
  CHECK(standing[kNode] > standing[kOther]);
}

TEST_CASE_METHOD(Looks, "a connection that is gone is forgotten") {
  for (uint64_t cookie = 1; cookie <= 100; ++cookie) Answer(cookie, 1);
  Look();
  CHECK(history.size() == 100);
  answered.clear();
  Answer(kOther, 1);
  Look();
  CHECK(history.size() == 1);
}

}  // namespace
}  // namespace lunkeeper
