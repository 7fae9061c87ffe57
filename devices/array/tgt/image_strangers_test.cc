// Part of rbd_array_test: needs a Ceph. Whose the clients are by which an image is seen to be open.

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
#include "devices/array/tgt/testing/strangers.h"

namespace lunkeeper::testing {

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: a volume goes on beside somebody who has its image open, and is not grown") {
  const VolumeId volume = Make("v");
  const auto initiator = Login(volume);
  REQUIRE(initiator->Write(0, 'a'));
  Stranger stranger(*this, volume);
  CHECK(stranger.IsNamed(cluster->volumes().ExpandVolume(volume, 32 << 20).status()));
  CHECK(initiator->Write(0, 'b'));
  Reopen();
  CHECK(initiator->Write(0, 'c'));
  CHECK_FALSE(NamedOf(*this, volume).contains(stranger.pool->address()));
  stranger.Close();
  CHECK(cluster->volumes().ExpandVolume(volume, 32 << 20).status() == absl::OkStatus());
  CHECK(Login(volume)->Write(0, 'd'));
  CHECK(stranger.CanWrite());
}

// As where the lock was removed to use the image elsewhere. tgtd's client is not seen then, and the other
// one is, just as if it were tgtd's.
TEST_CASE_METHOD(OnCeph,
                 "on Ceph: somebody who has an image open whose client is shut out is not taken for it") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const auto writes = WriterOf(*this, volume);
  const std::set<ClientAddress> own = NamedOf(*this, volume);
  REQUIRE(own.size() == 1);
  const CapturedLog log(directory / "log");
  Stranger stranger(*this, volume);
  REQUIRE(stranger.pool->BlockClient(*own.begin(), absl::Minutes(10)) == absl::OkStatus());
  const std::string named = "is open elsewhere, by " + stranger.pool->address();
  CHECK(Eventually([&] { return absl::StrContains(log.Text(), named); }));
  Reopen();
  absl::SleepFor(absl::Seconds(3));  // in which it is tried to open it anew
  CHECK_FALSE(writes());
  CHECK(NamedOf(*this, volume) == own);
  stranger.Close();
  CHECK(Eventually(writes));
  CHECK(stranger.CanWrite());
}

TEST_CASE_METHOD(WithTakeover,
                 "on Ceph: after a takeover, too, no image is opened anew beside another program") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const auto pool = ConnectToCeph();
  TakeOver();
  const auto writes = WriterOf(*this, volume);
  REQUIRE(Eventually(writes));
  const std::set<ClientAddress> own = NamedOf(*this, volume);
  REQUIRE(own.size() == 1);
  Stranger stranger(*this, volume);
  REQUIRE(stranger.pool->BlockClient(*own.begin(), absl::Minutes(10)) == absl::OkStatus());
  absl::SleepFor(absl::Seconds(8));  // some looks
  CHECK_FALSE(writes());
  CHECK(NamedOf(*this, volume) == own);
  CHECK(stranger.CanWrite());
}

// The gateway before was not just opening the image, so nobody's client is that gateway's.
TEST_CASE_METHOD(WithTakeover,
                 "on Ceph: after a takeover, too, another program is not taken for the gateway's before") {
  const VolumeId volume = Make("v");
  REQUIRE(Login(volume)->Write(0, 'a'));
  const auto writes = WriterOf(*this, volume);
  Stranger stranger(*this, volume);
  TakeOver();
  absl::SleepFor(absl::Seconds(3));  // some attempts
  CHECK_FALSE(writes());
  CHECK_FALSE(NamedOf(*this, volume).contains(stranger.pool->address()));
  stranger.Close();
  CHECK(Eventually(writes));
  Release(volume);
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK(stranger.CanWrite());
}

// It lets nobody in, and is not shut out: nobody knows it for certain.
TEST_CASE_METHOD(WithTakeover,
                 "on Ceph: a client that the gateway before had not registered yet keeps no volume away") {
  const VolumeId volume = Make("v");
  Login(volume);
  const std::set<ClientAddress> left = NamedOf(*this, volume);
  TakeOver([&](GatewayRecord& record) { record.images[ImageOf(volume)].clear(); });
  REQUIRE(Login(volume)->Write(0, 'a'));
  const std::set<ClientAddress> own = NamedOf(*this, volume);
  CHECK((own.size() == 1 && own != left));
  KillTgtd(*this, options.control_port);
  CHECK(Login(volume)->Write(0, 'b'));
  CHECK(absl::StrContains(Rbd("status " + ImageOf(volume)), *left.begin()));  // as before
}

TEST_CASE_METHOD(OfOneTgtd, "on Ceph: a LUN lets nobody in while its client is not seen") {
  const VolumeId volume = Make("v");
  const Grant a = Acquire(volume, kA);
  const GrantRequest next = {.volume = volume, .node = kB, .access = Access::kSharedWrite};
  const std::set<ClientAddress> first = NamedOf(*this, volume);
  {
    const ShownAs shown([&](const ClientAddress& client) { return first.contains(client) ? client : ""; });
    CHECK(absl::IsUnavailable(cluster->grants().AcquireGrant(next, absl::ZeroDuration()).status()));
    CHECK(NamedOf(*this, volume) == first);
  }
  const Grant b = Acquire(volume, kB);
  CHECK(NamedOf(*this, volume).size() == 2);
  for (const Grant& grant : {a, b}) CHECK(CanWrite(grant.connection, 0, 'a'));
}

// The node whose LUN it is does not call again.
TEST_CASE_METHOD(OfOneTgtd, "on Ceph: a LUN whose client was not seen keeps other nodes away for seconds") {
  const VolumeId volume = Make("v");
  Acquire(volume, kA);
  const std::set<ClientAddress> first = NamedOf(*this, volume);
  const auto acquire = [&](const NodeId& node) {
    const GrantRequest request = {.volume = volume, .node = node, .access = Access::kSharedWrite};
    return cluster->grants().AcquireGrant(request, absl::ZeroDuration()).status();
  };
  {
    const ShownAs shown([&](const ClientAddress& client) { return first.contains(client) ? client : ""; });
    CHECK(absl::IsUnavailable(acquire(kB)));
  }
  CHECK(Eventually([&] { return acquire(NodeId("node-c.1")).ok(); }));
  CHECK(NamedOf(*this, volume).size() == 3);
}

// As one that died between the two: its tgtd has the image open by a client that nobody knows.
TEST_CASE_METHOD(OfOneTgtd,
                 "on Ceph: an image that an agent before had opened and not registered is opened anew") {
  const VolumeId volume = Make("v");
  const pid_t tgtd = TgtdProcess(options.control_port);
  const GrantRequest request = {.volume = volume, .node = kA, .access = Access::kSharedWrite};
  {
    const ShownAs shown([](const ClientAddress&) { return ""; });
    CHECK(absl::IsUnavailable(cluster->grants().AcquireGrant(request, absl::ZeroDuration()).status()));
    cluster.reset();
    array.reset();
  }
  Reopen();
  CHECK(Eventually(WriterOf(*this, volume)));
  CHECK(NamedOf(*this, volume).size() == 1);
  CHECK(TgtdProcess(options.control_port) == tgtd);
}

// Its kernel has one client for all the images that it has mapped.
TEST_CASE_METHOD(OfOneTgtd, "on Ceph: somebody who has had a shared volume's image open is not shut out") {
  const VolumeId volume = Make("v");
  const Grant a = Acquire(volume, kA);
  const GrantRequest next = {.volume = volume, .node = kB, .access = Access::kSharedWrite};
  Stranger stranger(*this, volume);
  CHECK(stranger.IsNamed(cluster->grants().AcquireGrant(next, absl::ZeroDuration()).status()));
  stranger.Close();
  Acquire(volume, kB);
  Release(volume, kB);
  Acquire(volume, kB);
  absl::SleepFor(absl::Seconds(3));  // in which ended clients are shut out
  CHECK(stranger.CanWrite());
  const auto goes_on = PlainInitiator::Login(a.connection);
  REQUIRE(goes_on.status() == absl::OkStatus());
  CHECK((*goes_on)->Write(1, 'a'));
}

}  // namespace lunkeeper::testing
