// What a node and a controller that are one version apart make of each other's messages.

#include "fencing/protocol/messages.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

TEST_CASE("an older node does not say how it uses a volume, and a newer one's unknown way is refused") {
  const v1::AcquireRequest older;
  CHECK(*ReadMode(older.mode()) == VolumeMode::kAny);
  for (const VolumeMode mode : {VolumeMode::kAny, VolumeMode::kFilesystem, VolumeMode::kBlock})
    CHECK(*ReadMode(WriteMode(mode)) == mode);
  CHECK(absl::IsInvalidArgument(ReadMode(static_cast<v1::VolumeMode>(99)).status()));
}

TEST_CASE("an older controller's grant is read without what it does not know") {
  Grant grant;
  grant.generation = 7;
  grant.connection.portal = "10.0.0.5:3260";
  grant.connection.chap = {"user", "secret"};
  grant.connection.target_chap = {"target", "other secret"};
  grant.connection.other_portals = grant.connection.peer_portals = {"10.0.0.6:3260"};
  grant.connection.digests = Digests::kAll;
  v1::AcquireRequest request;
  request.set_access(v1::EXCLUSIVE);
  v1::Grant message = WriteGrant(grant);
  CHECK((ReadGrant(request, message).connection == grant.connection));
  message.mutable_connection()->clear_target_chap_user();
  message.mutable_connection()->clear_target_chap_secret();
  message.mutable_connection()->clear_other_portals();
  message.mutable_connection()->clear_peer_portals();
  message.mutable_connection()->clear_digests();
  const Grant read = ReadGrant(request, message);
  CHECK(read.generation == 7);
  CHECK((read.connection.chap == grant.connection.chap));
  CHECK(read.connection.target_chap.user.empty());
  CHECK(read.connection.other_portals.empty());
  CHECK(read.connection.digests == Digests::kNone);
}

TEST_CASE("a heartbeat's answer carries limits, and so does a grant that has any") {
  const LimitsByVolume limits = {{VolumeId("v1"), {.iops = 200, .bytes_per_second = 3, .version = 4}},
                                 {VolumeId("v2"), {.iops = 0, .bytes_per_second = 0, .version = 9}}};
  CHECK(ReadLimits(WriteAnswer({}, limits, {}, {})) == limits);
  CHECK(ReadLimits(WriteAnswer({}, {}, {}, {})).empty());
  Grant grant;
  CHECK_FALSE(WriteGrant(grant).has_limits());
  grant.limits = limits.begin()->second;
  CHECK(ReadGrant({}, WriteGrant(grant)).limits == grant.limits);
}

TEST_CASE("a heartbeat says of some devices where they are, and an older node's says nothing") {
  const DeviceDetails details = {{VolumeId("v1"),
                                  {.device = "/dev/loop3",
                                   .paths = {{"10.0.0.5:3260", PathState::kConnected},
                                             {"10.0.1.5:3260", PathState::kStandby},
                                             {"a", PathState::kReconnecting},
                                             {"b", PathState::kLost},
                                             {"c", PathState::kFailed}},
                                   .mounts = {"/var/lib/kubelet/pods/x/mount"}}},
                                 {VolumeId("v2"), {.device = "/dev/loop4", .paths = {}, .mounts = {}}}};
  v1::Heartbeat message;
  CHECK(ReadDetails(message).empty());
  WriteDetails(details, &message);
  CHECK((ReadDetails(message) == details));
  message.mutable_details(0)->mutable_paths(0)->set_state(static_cast<v1::DeviceDetail::PathState>(99));
  CHECK(ReadDetails(message)[VolumeId("v1")].paths[0].state == PathState::kUnknown);
}

TEST_CASE("no heartbeat is refused for what it says of devices; what is malformed is left out") {
  v1::Heartbeat message;
  const auto add = [&](const std::string& device) {
    v1::DeviceDetail* detail = message.add_details();
    detail->set_volume_id("v" + std::to_string(message.details_size()));
    detail->set_device(device);
    return detail;
  };
  add(std::string(1000, 'x'));
  add("/dev/loop\n3");
  v1::DeviceDetail* good = add("/dev/loop3");
  good->add_mounts(std::string(1000, 'x'));
  for (int i = 0; i < 100; ++i) {
    good->add_mounts("/mnt");
    good->add_paths()->set_portal("10.0.0.5:3260");
  }
  CHECK(ReadHeartbeat(message).ok());
  const DeviceDetails details = ReadDetails(message);
  REQUIRE(details.size() == 1);
  CHECK(details.begin()->second.mounts == std::vector<std::string>(kMostMounts, "/mnt"));
  CHECK(details.begin()->second.paths.size() == kMostPaths);
  while (message.details_size() < 1000) add("/dev/loop3");
  CHECK(ReadHeartbeat(message).ok());
  CHECK(ReadDetails(message).empty());
}

TEST_CASE("a heartbeat's answer names the arrays that were removed") {
  CHECK(ReadRemovedArrays(WriteAnswer({}, {}, {"rack1", "rack2"}, {})) ==
        std::set<std::string>{"rack1", "rack2"});
  CHECK(ReadRemovedArrays(WriteAnswer({}, {}, {}, {})).empty());
}

TEST_CASE("a heartbeat's answer names other replicas, and an older controller's names none") {
  const std::vector<std::string> replicas = {"10.0.0.5:7443", "[fd00::1]:7443"};
  CHECK(ReadReplicas(WriteAnswer({}, {}, {}, replicas)) == replicas);
  CHECK(ReadReplicas(v1::HeartbeatAnswer()).empty());
}

}  // namespace
}  // namespace lunkeeper
