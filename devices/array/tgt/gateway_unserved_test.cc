// Part of rbd_array_test: needs a Ceph. What a gateway that took an array does with it when it does not
// serve.

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/open_portal.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/testing/lease_gateway.h"
#include "devices/array/tgt/testing/replaced_call.h"
#include "devices/array/tgt/testing/second_gateway.h"
#include "devices/array/tgt/testing/taken_port.h"
#include "devices/array/tgt/tgt_servers.h"
#include "devices/array/tgt/unserved_starts.h"

namespace lunkeeper::testing {
namespace {

// But for the look whether the pool answers.
decltype(CephLibrary::rbd_list2) list_for_real;
int FailToList(CephLibrary::Handle context, CephLibrary::ImageSpec* images, size_t* most) {
  return images == nullptr ? list_for_real(context, images, most) : -EIO;
}

std::atomic<bool> images_are_silent = false;
decltype(CephLibrary::rbd_open_read_only) open_for_real;
int OpenUnlessSilent(CephLibrary::Handle context, const char* name, CephLibrary::Handle* image,
                     const char* snapshot) {
  while (images_are_silent) absl::SleepFor(absl::Milliseconds(10));
  return open_for_real(context, name, image, snapshot);
}

struct WithTwoThere : WithASecond {
  WithTwoThere() : WithASecond(2) {}
};

// Whether a portal was open when a record was changed last.
std::string watched_record, watched_portal;
std::atomic<bool> was_open = false;
decltype(CephLibrary::rados_write_op_operate) write_for_real;
int WriteAndLook(CephLibrary::Handle op, CephLibrary::Handle context, const char* object, time_t* changed,
                 int flags) {
  if (object == watched_record) was_open = FindOpenPortal({watched_portal}, absl::Seconds(1)).has_value();
  return write_for_real(op, context, object, changed, flags);
}

}  // namespace

// Another host's agent, which remembers less, would serve it without that word.
TEST_CASE_METHOD(WithASecond,
                 "on Ceph: a gateway that waits for an operator's word does not give the array away") {
  std::ofstream(second.options.seen_sequence_path) << "1000";  // so this catalogue counts as restored
  REQUIRE(second.Open() == absl::OkStatus());
  CHECK(absl::IsUnavailable(second.array->CheckServing()));
  second.Close();
  CHECK_FALSE(IsGivenAway());
}

TEST_CASE_METHOD(WithASecond,
                 "on Ceph: a gateway whose nodes are served keeps the array if its start fails then") {
  list_for_real = Library().rbd_list2;
  {
    const ReplacedCall list(Library().rbd_list2, FailToList);
    REQUIRE_FALSE(second.Open().ok());
  }
  CHECK_FALSE(IsGivenAway());
  const pid_t tgtd = TgtdProcess(second.options.control_port);
  const auto initiator = PlainInitiator::Login(connection);
  REQUIRE(initiator.status() == absl::OkStatus());
  CHECK((*initiator)->Write(0, 'x'));
  REQUIRE(second.Open() == absl::OkStatus());
  CHECK((*initiator)->Write(1, 'y'));
  CHECK(TgtdProcess(second.options.control_port) == tgtd);
}

// Nobody could be fenced for as long as it crashes.
TEST_CASE_METHOD(
    WithASecond,
    "on Ceph: a gateway that never comes to answer calls leaves its nodes to one that stands by") {
  list_for_real = Library().rbd_list2;
  const ReplacedCall list(Library().rbd_list2, FailToList);
  for (uint64_t i = 0; i < UnservedStarts::kMost; ++i) REQUIRE_FALSE(second.Open().ok());
  const pid_t tgtd = TgtdProcess(second.options.control_port);
  REQUIRE(tgtd != 0);
  REQUIRE_FALSE(second.Open().ok());  // and nobody stands by
  CHECK_FALSE(IsGivenAway());
  CHECK(TgtdProcess(second.options.control_port) == tgtd);
  Gateway other(options.name, "host-b", absl::Seconds(20));
  absl::Status taken;
  std::jthread stands_by = other.StandBy(&taken);
  REQUIRE(Eventually([&] { return !second.Open().ok() && TgtdProcess(second.options.control_port) == 0; },
                     absl::Minutes(1)));
  CHECK(Eventually([&] { return other.Record().holder == "host-b.boot"; }));
  stands_by.join();
  CHECK(taken == absl::OkStatus());
}

// It has the array a moment after it has looked at its tgtds, and not when a tgtd that hangs has answered.
TEST_CASE_METHOD(WithASecond,
                 "on Ceph: an agent that is started while its tgtd hangs is not too late to keep the array") {
  REQUIRE(second.Open() == absl::OkStatus());
  Gateway other(options.name, "host-b", second.options.ceph.takeover_after);
  absl::Status taken;
  std::atomic<bool> is_taken = false;
  std::jthread stands_by([&](const std::stop_token& stop) {
    taken = other.Take([&](const absl::Status&) {
      ++other.seen;
      return stop.stop_requested() ? absl::CancelledError("stop") : absl::OkStatus();
    });
    is_taken = true;
  });
  REQUIRE(Eventually([&] { return other.seen > 0; }));
  second.Close();
  ::kill(TgtdProcess(second.options.control_port), SIGSTOP);  // until that agent finds it
  CHECK(second.Open() == absl::OkStatus());
  CHECK_FALSE(is_taken);
  stands_by.request_stop();
}

TEST_CASE_METHOD(WithASecond, "on Ceph: a silent image does not keep a gateway from giving the array away") {
  open_for_real = Library().rbd_open_read_only;
  const ReplacedCall open(Library().rbd_open_read_only, OpenUnlessSilent);
  second.options.portals = {"192.0.2.1:3260"};  // of no host
  images_are_silent = true;
  absl::Status opened;
  std::jthread opening([&] { opened = second.Open(); });
  CHECK(Eventually([&] { return IsGivenAway(); }));
  CHECK(Open() == absl::OkStatus());
  images_are_silent = false;  // to the second one too, which is shut out and ends all the same
  opening.join();
  CHECK_FALSE(opened.ok());
}

// Nodes that have volumes there would get errors from it, and not go on at the next gateway's.
TEST_CASE_METHOD(WithTwoThere, "on Ceph: an array is not given away while one of its tgtds serves") {
  watched_record = GatewayRecordName(options.name);
  watched_portal = PortalOfTgtd(second.options.portals.front(), 1).value();
  const TakenPort first(ParseHostPort(second.options.portals.front())->port);
  write_for_real = Library().rados_write_op_operate;
  const ReplacedCall write(Library().rados_write_op_operate, WriteAndLook);
  CHECK(absl::StrContains(second.Open().message(), "no portal can be opened"));
  CHECK(IsGivenAway());
  CHECK_FALSE(was_open);
  CHECK(TgtdProcess(second.options.control_port + 1) == 0);
}

TEST_CASE("nodes that are served are left to another gateway after more starts each time") {
  TempDir directory;
  const UnservedStarts starts(directory.path());
  uint64_t count = 0;
  const auto count_until_left = [&] {
    for (count = 0; !starts.IsTimeToLeave(); ++count) starts.CountUp();
    starts.NoteGivenAway();
    return count;
  };
  CHECK(count_until_left() == UnservedStarts::kMost);
  CHECK(count_until_left() == 2 * UnservedStarts::kMost);
  CHECK(count_until_left() == 4 * UnservedStarts::kMost);
  CHECK(starts.Count() == 7 * UnservedStarts::kMost);
  starts.ForgetStarts();
  CHECK(count_until_left() == UnservedStarts::kMost);
}

}  // namespace lunkeeper::testing
