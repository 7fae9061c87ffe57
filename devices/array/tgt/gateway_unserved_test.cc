// Part of rbd_array_test: needs a Ceph. What a gateway that took an array does with it when it does not
// serve.

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
#include "devices/array/tgt/testing/replaced_call.h"
#include "devices/array/tgt/testing/second_gateway.h"
#include "devices/array/tgt/testing/taken_port.h"
#include "devices/array/tgt/tgt_servers.h"

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

}  // namespace lunkeeper::testing
