// The array on a real Ceph, with a real tgtd: what all arrays promise, and what is this store's own. Needs
// root and a Ceph (testing/on_ceph.h).

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/host_name.h"
#include "devices/array/testing/array_contract.h"
#include "devices/array/testing/block_contract.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/image_lock.h"
#include "devices/array/tgt/testing/damage.h"
#include "devices/array/tgt/testing/on_ceph.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
TEST_CASE_METHOD(OnCeph, "on Ceph: a volume is made, written, snapshot, restored, grown and deleted") {
  const VolumeId volume = Make("v");
  Write(volume, 0, 'a');
  const SnapshotId snapshot = Snap("s", volume);
  Write(volume, 0, 'b');
  const VolumeId restored = MakeFrom("r", snapshot, {}), copy = MakeFrom("c", {}, volume);
  CHECK(Read(restored, 0) == 'a');
  CHECK(Read(copy, 0) == 'b');
  {
    const auto initiator = Login(volume);
    CHECK(initiator->SizeBytes() == 16 << 20);
    REQUIRE(cluster->volumes().ExpandVolume(volume, 32 << 20).ok());
  }
  {
    const auto initiator = Login(volume);
    CHECK(initiator->SizeBytes() == 32 << 20);
    CHECK(initiator->Write(32 * 2048 - 1, 'e'));
    CHECK(initiator->Read(0) == 'b');
  }
  Release(volume);
  // In the order that RBD likes least: each goes before what was made from it.
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  CHECK(cluster->volumes().DeleteSnapshot(snapshot) == absl::OkStatus());
  CHECK(Read(restored, 0) == 'a');
  CHECK(Read(copy, 0) == 'b');
  CHECK(cluster->volumes().DeleteVolume(restored) == absl::OkStatus());
  CHECK(cluster->volumes().DeleteVolume(copy) == absl::OkStatus());
  CHECK(Eventually([&] { return !HasImages(); }));
  CHECK(!absl::StrContains(Rbd("trash ls --all lk"), options.name));
}

// In whatever order their names are.
TEST_CASE_METHOD(OnCeph, "on Ceph: sources that were deleted first are removed with their last clone") {
  std::vector<VolumeId> chain = {Make("v")};
  for (int i = 0; i < 4; ++i) chain.push_back(MakeFrom(absl::StrCat("c", i), {}, chain.back()));
  for (const VolumeId& volume : chain) CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  CHECK(Eventually([&] { return !HasImages(); }));
}

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: a snapshot outlives its volume, also over a restart, and can be restored") {
  const VolumeId volume = Make("v");
  Write(volume, 0, 'a');
  const SnapshotId snapshot = Snap("s", volume);
  REQUIRE(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  Reopen();
  CHECK(array->ListOrphans()->empty());
  CHECK(Read(MakeFrom("r", snapshot, {}), 0) == 'a');
}

TEST_CASE_METHOD(OnCeph, "on Ceph: all that was stored is there after a restart, and tgtd goes on") {
  const VolumeId volume = Make("v");
  const auto initiator = Login(volume);
  REQUIRE(initiator->Write(7, 'x'));
  const uint64_t sequence = array->sequence();
  Reopen();
  CHECK(array->sequence() >= sequence);
  CHECK(initiator->Read(7) == 'x');
  CHECK(initiator->Write(8, 'y'));
  CHECK(cluster->volumes().CreateVolume(Spec("v", 16))->id == volume);
  CHECK(array->ListOrphans()->empty());
}

TEST_CASE_METHOD(OnCeph, "on Ceph: an array keeps what arrays promise of volumes, grants and fences") {
  CheckArray(*cluster, {kA, kB, NodeId("node-c.1")});
}

TEST_CASE_METHOD(OnCeph, "on Ceph: an array lists the blocks of its snapshots as promised") {
  // RBD tells objects of 4 MiB apart. sparsify frees the blocks of zeroes.
  const BlockWriter node{
      .write = [&](const VolumeId& volume, uint64_t offset) { WriteBlocks(volume, offset / 512, 8, 'x'); },
      .discard =
          [&](const VolumeId& volume, uint64_t offset) {
            WriteBlocks(volume, offset / 512, 8, '\0');
            Rbd("sparsify --no-progress " + ImageOf(volume));
          },
      .unit = 4 << 20};
  CheckBlockLists(*cluster, node);
  CheckBlocksOfGrownVolume(*cluster, node);
  const auto other = Cluster("c2");
  CheckBlockRefusals(*cluster, *other);
}

TEST_CASE_METHOD(OnCeph, "on Ceph: what it cannot do is refused, with what to do, and nothing is made") {
  VolumeSpec thick = Spec("t", 16);
  thick.provisioning = Provisioning::kThick;
  const auto refused = cluster->volumes().CreateVolume(thick);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), "provisioning: thin"));
  const VolumeId a = Make("a"), b = Make("b");
  const auto group = cluster->groups().CreateGroup("g", {a, b});
  CHECK(absl::IsFailedPrecondition(group.status()));
  CHECK(absl::StrContains(group.status().message(), "one by one"));
  CHECK(cluster->volumes().ListSnapshots({}, "", 0)->items.empty());
  CHECK(absl::StrContains(array->BackUp(directory.path(), nullptr).message(), "`rbd export`"));
}

TEST_CASE_METHOD(OnCeph, "on Ceph: an image that somebody else has open is neither served nor deleted") {
  const VolumeId volume = Make("v");
  // Until its input ends.
  Run(absl::StrCat("sh -c 'echo $$ > ", directory / "pid", "; exec sleep 60' | rbd --conf ", Conf(),
                   " watch ", ImageOf(volume), " > ", directory / "watch", " 2>&1 &"));
  REQUIRE(Eventually([&] { return absl::StrContains(Rbd("status " + ImageOf(volume)), "watcher="); }));
  const auto grant = cluster->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  CHECK(absl::IsUnavailable(grant.status()));
  CHECK(absl::StrContains(grant.status().message(), "is open elsewhere, by 127.0.0.1"));
  CHECK(cluster->grants().ListGrants({volume, {}})->empty());
  CHECK(absl::IsUnavailable(cluster->volumes().DeleteVolume(volume)));
  CHECK(cluster->volumes().GetVolume(volume).ok());
  Run(absl::StrCat("kill $(cat ", directory / "pid", ")"));
  REQUIRE(Eventually([&] { return !absl::StrContains(Rbd("status " + ImageOf(volume)), "watcher="); }));
  Write(volume, 0, 'a');
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a second agent of an array does not serve, and says who does") {
  ArrayFixture second;
  second.options.name = options.name;
  second.options.ceph = options.ceph;
  const absl::Status refused = second.Open();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "another agent serves it, on host " + HostName()));
  Write(Make("v"), 0, 'a');
}

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: another gateway takes the array of a dead agent, whose tgtd writes no more") {
  options.ceph.takeover_after = absl::Seconds(4);
  const VolumeId volume = Make("v");
  const auto old = Login(volume);
  REQUIRE(old->Write(0, 'a'));
  cluster.reset();
  array.reset();
  REQUIRE(old->Write(1, 'b'));  // the agent's end alone costs nothing
  ArrayFixture second;
  second.options.name = options.name;
  second.options.ceph = options.ceph;
  REQUIRE(second.Open() == absl::OkStatus());
  // Else the first write waits until librbd has had the old client shut out, which it is.
  CHECK(!absl::StrContains(Rbd("lock ls " + ImageOf(volume)), "client."));
  CHECK(!old->Write(2, 'x'));
  const auto there = second.Cluster();
  const auto grant = there->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  const auto initiator = PlainInitiator::Login(grant->connection);
  REQUIRE(initiator.status() == absl::OkStatus());
  CHECK((*initiator)->Read(0) == 'a');
  CHECK((*initiator)->Read(1) == 'b');
  CHECK((*initiator)->Read(2) == '\0');
  CHECK((*initiator)->Write(2, 'c'));
  CHECK(!old->Write(2, 'x'));
  CHECK((*initiator)->Read(2) == 'c');
  // While the second one lives the first one is refused; then it takes the array back.
  const absl::Status refused = Open();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "another agent serves it, on host "));
  CHECK(TgtdProcess(options.control_port) == 0);  // which could only answer with errors
  second.array.reset();
  Reopen();
  CHECK(Read(volume, 2) == 'c');
  CHECK(!(*initiator)->Write(2, 'x'));
  Write(volume, 2, 'd');
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a gateway that takes the array and cannot serve it leaves it to others") {
  options.ceph.takeover_after = absl::Seconds(4);
  const VolumeId volume = Make("v");
  Write(volume, 0, 'a');
  cluster.reset();
  array.reset();
  ArrayFixture second;
  second.options.name = options.name;
  second.options.ceph = options.ceph;
  second.options.portals = {"192.0.2.1:3260"};  // of no host
  const absl::Status failed = second.Open();
  CHECK(absl::StrContains(failed.message(), "no portal can be opened"));
  const auto pool = CephPool::Connect(options.ceph);
  REQUIRE(pool.status() == absl::OkStatus());
  const auto record = ReadGatewayRecord(**pool, options.name);
  REQUIRE(record.status() == absl::OkStatus());
  CHECK(ParseReleased(**record) != "");
  Reopen();
  CHECK(Read(volume, 0) == 'a');
}

// Else two that use a shared volume would write to it with nobody to keep them apart.
TEST_CASE_METHOD(OnCeph, "on Ceph: an image's lock is broken where a dead client has it, and nowhere else") {
  const VolumeId volume = Make("v");
  const auto initiator = Login(volume);
  REQUIRE(initiator->Write(0, 'a'));
  const auto pool = CephPool::Connect(options.ceph);
  REQUIRE(pool.status() == absl::OkStatus());
  const auto image = (*pool)->OpenImage(ImageOf(volume).substr(3), "", /*read_only=*/true);
  REQUIRE(image.status() == absl::OkStatus());
  const auto is_locked = [&] { return absl::StrContains(Rbd("lock ls " + ImageOf(volume)), "client."); };
  REQUIRE(BreakImageLock(**pool, *image, {"127.0.0.1:0/1"}) == absl::OkStatus());
  CHECK(is_locked());
  const auto record = ReadGatewayRecord(**pool, options.name);
  REQUIRE(record.status() == absl::OkStatus());
  REQUIRE(BreakImageLock(**pool, *image, (*record)->images.at(ImageOf(volume))) == absl::OkStatus());
  CHECK(!is_locked());
}

// At a moment when its clients have not yet heard that they are shut out.
TEST_CASE_METHOD(OnCeph, "on Ceph: a frozen gateway that thaws answers no read with what was there before") {
  options.ceph.takeover_after = absl::Seconds(4);
  const VolumeId volume = Make("v");
  const auto old = Login(volume);
  REQUIRE(old->Write(0, 'a'));
  const pid_t frozen = TgtdProcess(options.control_port);
  cluster.reset();
  array.reset();
  ::kill(frozen, SIGSTOP);
  ArrayFixture second;
  second.options.name = options.name;
  second.options.ceph = options.ceph;
  const absl::Status opened = second.Open();
  const uint64_t elsewhere = (8 << 20) / 512;  // in an object that the old gateway knows not to be there
  const auto there = second.array ? second.Cluster() : nullptr;
  bool written = false;
  if (there) {
    const auto grant = there->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
    const auto initiator = PlainInitiator::Login(grant.ok() ? grant->connection : Connection());
    written = initiator.ok() && (*initiator)->Write(elsewhere, 'b');
  }
  ::kill(frozen, SIGCONT);
  REQUIRE(opened == absl::OkStatus());
  REQUIRE(written);
  CHECK(old->Read(elsewhere) == std::nullopt);
  CHECK(old->Read(0) == std::nullopt);
}

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: each client by which tgtd has an image open is known, until it is closed") {
  const auto known = [&](const VolumeId& volume) {
    const auto pool = CephPool::Connect(options.ceph);
    REQUIRE(pool.status() == absl::OkStatus());
    const auto record = ReadGatewayRecord(**pool, options.name);
    REQUIRE(record.status() == absl::OkStatus());
    const auto found = (*record)->images.find(ImageOf(volume));
    return found == (*record)->images.end() ? std::set<ClientAddress>() : found->second;
  };
  const auto watching = [&](const VolumeId& volume) {
    std::set<ClientAddress> clients;
    for (const absl::string_view line : absl::StrSplit(Rbd("status " + ImageOf(volume)), '\n')) {
      const size_t begin = line.find("watcher=");
      if (begin != line.npos) clients.emplace(line.substr(begin + 8, line.find(' ', begin) - begin - 8));
    }
    return clients;
  };
  const VolumeId volume = Make("v");
  CHECK(known(volume).empty());
  {
    const auto initiator = Login(volume);
    CHECK(known(volume).size() == 1);
    CHECK(known(volume) == watching(volume));
    const auto is_the_one = [&] { return known(volume).size() == 1 && known(volume) == watching(volume); };
    REQUIRE(cluster->volumes().ExpandVolume(volume, 32 << 20).ok());  // has it opened by a new client
    CHECK(std::ranges::includes(known(volume), watching(volume)));
    CHECK(Eventually(is_the_one));
    const std::set<ClientAddress> before = known(volume);
    ::kill(TgtdProcess(options.control_port), SIGKILL);
    REQUIRE(Eventually([&] { return array->CheckTgtd().ok() && known(volume) != before; }));
    CHECK(Eventually(is_the_one));
    Reopen();
    CHECK(is_the_one());
  }
  Release(volume);
  CHECK(Eventually([&] { return known(volume).empty(); }));
}

struct WithTwoTgtds : OnCeph {
  WithTwoTgtds() : OnCeph(2) {}
};

TEST_CASE_METHOD(WithTwoTgtds, "on Ceph: nodes are told this gateway's portal, and then its peers'") {
  const VolumeId volume = Make("v");
  options.peer_portals = {"127.0.0.1:9", "127.0.0.2:9"};
  Reopen();
  const auto grant = cluster->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  const std::string port = grant->connection.portal == options.portals.front() ? "9" : "10";
  for (const auto& portals : {grant->connection.other_portals, grant->connection.peer_portals})
    CHECK(portals == std::vector<std::string>{"127.0.0.1:" + port, "127.0.0.2:" + port});
  const auto heartbeats = cluster->fences().OpenHeartbeatLun({kA});
  REQUIRE(heartbeats.status() == absl::OkStatus());
  CHECK(heartbeats->other_portals.empty());
}

TEST_CASE_METHOD(OnCeph, "on Ceph: an image that has got an object map is not served") {
  const VolumeId volume = Make("v");
  Rbd("feature enable " + ImageOf(volume) + " object-map");
  const auto grant = cluster->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  CHECK(absl::IsFailedPrecondition(grant.status()));
  CHECK(absl::StrContains(grant.status().message(), "rbd feature disable " + ImageOf(volume)));
  Rbd("feature disable " + ImageOf(volume) + " object-map");
  Write(volume, 0, 'a');
}

TEST_CASE_METHOD(OnCeph, "on Ceph: an image whose own settings turn a cache on is not served") {
  const VolumeId volume = Make("v");
  Rbd(absl::StrCat("config image set ", ImageOf(volume), " rbd_cache true"));
  const auto grant = cluster->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration());
  CHECK(absl::IsFailedPrecondition(grant.status()));
  CHECK(absl::StrContains(grant.status().message(), "rbd config image rm"));
  Rbd(absl::StrCat("config image rm ", ImageOf(volume), " rbd_cache"));
  Write(volume, 0, 'a');
}

// tgtd connects anew for each image, on its one thread, and would keep all volumes until monitors answer.
TEST_CASE_METHOD(OnCeph, "on Ceph: tgtd is asked to open no image while monitors do not answer") {
  const VolumeId volume = Make("v");
  const auto acquire = [&] {
    return cluster->grants().AcquireGrant({.volume = volume, .node = kA}, absl::ZeroDuration()).status();
  };
  {
    const ReplacedCall wait(
        Library().rados_wait_for_latest_osdmap, +[](CephLibrary::Handle) { return -EIO; });
    CHECK_FALSE(acquire().ok());
  }
  CHECK(acquire() == absl::OkStatus());
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a damaged image keeps no other volume away, and nothing of it is lost") {
  const VolumeId good = Make("good"), bad = Make("bad");
  const SnapshotId snapshot = Snap("s", bad);
  Write(bad, 1, 'b');
  for (const VolumeId& volume : {good, bad}) Login(volume);
  const auto grants = cluster->grants().ListGrants({});
  REQUIRE(grants->size() == 2);
  const auto serves = [&](const VolumeId& volume) {
    const bool first = grants->front().volume == volume;
    const auto initiator = PlainInitiator::Login((first ? grants->front() : grants->back()).connection);
    CHECK_FALSE(absl::IsPermissionDenied(initiator.status()));  // which is for good
    return initiator.ok() && (*initiator)->Write(0, 'a');
  };
  const Damage damage(*this, bad);
  const bool tgtd_dies = GENERATE(true, false);  // or has it open all the while
  if (tgtd_dies) ::kill(TgtdProcess(options.control_port), SIGKILL);
  Reopen();
  CHECK(serves(good));
  CHECK(serves(bad) != tgtd_dies);
  damage.Repair();
  CHECK(Eventually([&] { return serves(bad); }));
  Reopen();
  CHECK(array->ListOrphans()->empty());
  CHECK(Read(MakeFrom("r", snapshot, {}), 1) == '\0');
  CHECK(Read(bad, 1) == 'b');
}

TEST_CASE_METHOD(OnCeph, "on Ceph: images of others stay, and one without a row is set aside, not deleted") {
  const std::string stranger = "lk/stranger-" + options.name;
  Rbd(absl::StrCat("create --size 4M ", stranger));
  const VolumeId volume = Make("v");
  const std::string lost = absl::StrCat("lunkeeper.", options.name, ".", options.name, "-vlost");
  const std::string half = lost + "-half";  // Ceph lists it, and cannot open it
  const std::string rados = absl::StrCat("rados --conf ", Conf(), " -p lk ");
  const std::string mark = absl::StrCat(rados, "setomapval lunkeeper.", options.name, ".images ");
  for (const std::string& name : {lost, half}) Run(mark + name + " new");  // calls were cut short
  for (const std::string& name : {lost, half}) Rbd("create --size 4M lk/" + name);
  Run(rados + "rm rbd_id." + half);
  Reopen();
  CHECK(Eventually([&] { return !absl::StrContains(Rbd("ls lk"), lost); }));
  Rbd(absl::StrCat("create --size 4M lk/", lost));
  Run(mark + lost + " kept");
  Reopen();
  REQUIRE(array->ListOrphans()->size() == 1);
  CHECK(array->ListOrphans()->front().name == lost);
  Run(rados + "rm rbd_id." + lost);  // now nobody can open it
  CHECK(array->ListOrphans()->size() == 1);
  CHECK(array->DeleteOrphan(lost) == absl::OkStatus());
  CHECK(absl::IsNotFound(array->DeleteOrphan(lost)));
  const std::string left = Rbd("ls lk");
  CHECK(!absl::StrContains(left, lost));
  CHECK(absl::StrContains(left, "stranger-" + options.name));
  CHECK(cluster->volumes().GetVolume(volume).ok());
}

}  // namespace lunkeeper::testing
