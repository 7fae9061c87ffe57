// Part of rbd_array_test: needs a Ceph. In which order a gateway takes an array, and one of many volumes.

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/testing/damage.h"
#include "devices/array/tgt/testing/replaced_call.h"
#include "devices/array/tgt/testing/second_gateway.h"
#include "devices/array/tgt/testing/taken_port.h"

namespace lunkeeper::testing {
namespace {

// What the second gateway does of the calls of Ceph's library, in the order of a takeover.
std::atomic<int> blocked = 0, images_opened = 0, catalogues_opened = 0;
std::atomic<bool> map_is_awaited = false, map_comes = false;
decltype(CephLibrary::rados_mon_command) command_for_real;
decltype(CephLibrary::rados_wait_for_latest_osdmap) wait_for_real;
decltype(CephLibrary::rbd_open_read_only) open_image_for_real;
decltype(CephLibrary::cephsqlite_setcct) connect_for_real;

int CountBlocked(CephLibrary::Handle cluster, const char** command, size_t commands, const char* in,
                 size_t in_size, char** out, size_t* out_size, char** text, size_t* text_size) {
  const int done = command_for_real(cluster, command, commands, in, in_size, out, out_size, text, text_size);
  blocked += absl::StrContains(command[0], "osd blocklist");
  return done;
}
int WaitUntilItComes(CephLibrary::Handle cluster) {
  map_is_awaited = true;
  while (!map_comes) absl::SleepFor(absl::Milliseconds(10));
  return wait_for_real(cluster);
}
int CountImages(CephLibrary::Handle context, const char* name, CephLibrary::Handle* image,
                const char* snapshot) {
  ++images_opened;
  return open_image_for_real(context, name, image, snapshot);
}
int CountCatalogues(CephLibrary::Handle configuration, char** address) {
  ++catalogues_opened;
  return connect_for_real(configuration, address);
}

// The record as another gateway has changed it.
std::string others_record;
decltype(CephLibrary::rados_read) record_for_real;
int ReadOthers(CephLibrary::Handle context, const char* object, char* contents, size_t most,
               uint64_t offset) {
  if (!absl::EndsWith(object, ".gateway")) return record_for_real(context, object, contents, most, offset);
  return static_cast<int>(others_record.copy(contents, most));
}

// Nothing changes the record.
decltype(CephLibrary::rados_write_op_operate) change_for_real;
int RefuseRecord(CephLibrary::Handle op, CephLibrary::Handle context, const char* object, time_t* time,
                 int flags) {
  return absl::EndsWith(object, ".gateway") ? -EIO : change_for_real(op, context, object, time, flags);
}

// A volume by whose client nothing more can be asked of Ceph, as after `rbd lock rm`; and so does the next
// gateway shut it out.
struct WithShutOut : OnCeph {
  WithShutOut() {
    REQUIRE(Login(volume)->Write(0, 'a'));
    connection = cluster->grants().ListGrants({volume, {}})->front().connection;
    clients = Registered();
    REQUIRE(clients.size() == 1);
  }
  void ShutOut() { REQUIRE(pool->BlockClient(*clients.begin(), absl::Minutes(10)) == absl::OkStatus()); }
  std::set<ClientAddress> Registered() const {
    return ReadGatewayRecord(*pool, options.name).value()->images.at(ImageOf(volume));
  }
  bool Writes() const { return CanWrite(connection, 0, 'b'); }
  // Over several looks.
  void CheckWritesNothing() const {
    for (int i = 0; i < 16; ++i) {
      CHECK_FALSE(Writes());
      absl::SleepFor(absl::Milliseconds(500));
    }
  }
  void CheckIsOpenAnew() const {
    CHECK(Eventually([&] { return Writes(); }));
    CHECK(Eventually([&] { return Registered().size() == 1 && Registered() != clients; }));
  }

  const VolumeId volume = Make("v");
  const std::unique_ptr<CephPool> pool = ConnectToCeph();
  Connection connection;
  std::set<ClientAddress> clients;
};

// While it lives, the cluster's map is late.
struct WithLateMap : WithASecond {
  WithLateMap() {
    blocked = images_opened = catalogues_opened = 0;
    map_is_awaited = map_comes = false;
  }
  ~WithLateMap() { map_comes = true; }

  CephLibrary& ceph = Library();
  const ReplacedCall<decltype(CephLibrary::rados_mon_command)> command{
      ceph.rados_mon_command, (command_for_real = ceph.rados_mon_command, CountBlocked)};
  const ReplacedCall<decltype(CephLibrary::rados_wait_for_latest_osdmap)> wait{
      ceph.rados_wait_for_latest_osdmap,
      (wait_for_real = ceph.rados_wait_for_latest_osdmap, WaitUntilItComes)};
  const ReplacedCall<decltype(CephLibrary::rbd_open_read_only)> open{
      ceph.rbd_open_read_only, (open_image_for_real = ceph.rbd_open_read_only, CountImages)};
  const ReplacedCall<decltype(CephLibrary::cephsqlite_setcct)> connect{
      ceph.cephsqlite_setcct, (connect_for_real = ceph.cephsqlite_setcct, CountCatalogues)};
};

}  // namespace

// What was opened, or sent, with the map of before would not be kept apart from what the old gateway sends.
TEST_CASE_METHOD(
    WithLateMap,
    "on Ceph: a gateway opens nothing before the old one is blocked and it has the map of that") {
  const auto before = ReadGatewayRecord(*pool, options.name).value().value();
  size_t clients = before.clients.size();
  for (const auto& [image, of_image] : before.images) clients += of_image.size();
  REQUIRE(clients > 2);  // the agent's, the catalogue's and the image's
  absl::Status opened;
  std::atomic<bool> ended = false;
  std::jthread opening([&] {
    opened = second.Open();
    ended = true;
  });
  CHECK(Eventually([&] { return map_is_awaited || ended; }, absl::Minutes(1)));
  CHECK(map_is_awaited);
  CHECK_FALSE(ended);
  CHECK(static_cast<size_t>(blocked) == clients);
  CHECK(images_opened == 0);
  CHECK(catalogues_opened == 0);
  CHECK(TgtdProcess(second.options.control_port) == 0);
  CHECK(ReadGatewayRecord(*pool, options.name).value()->unfenced.size() == clients);
  map_comes = true;
  opening.join();
  REQUIRE(opened == absl::OkStatus());
  CHECK(catalogues_opened == 1);
  CHECK(images_opened > 0);
  second.Close();
}

// An agent confirms its answers itself. A host that was paused goes on with a clock by which it was never
// silent, and what its catalogue has in memory may be old.
TEST_CASE_METHOD(OnCeph,
                 "on Ceph: a controller's own array answers nothing that another gateway may have changed") {
  options.ceph.confirms_calls = true;
  Reopen();
  const VolumeId volume = Make("v");
  GatewayRecord other = ReadGatewayRecord(*ConnectToCeph(), options.name).value().value();
  ++other.epoch;
  other.holder = "another.boot";
  others_record = FormatGatewayRecord(options.name, other);
  const auto release = [&] {
    return cluster->grants().ReleaseGrant(volume, kA, GrantOwner::kNode, kAnyGeneration);
  };
  CHECK(release() == absl::OkStatus());
  record_for_real = Library().rados_read;
  {
    const ReplacedCall read(Library().rados_read, ReadOthers);
    CHECK(absl::IsUnavailable(release()));
    CHECK(absl::IsUnavailable(cluster->grants().ListGrants({volume, {}}).status()));
    CHECK(absl::IsUnavailable(cluster->fences().ListFences().status()));
    CHECK(absl::IsUnavailable(cluster->volumes().DeleteVolume(VolumeId(options.name + "-v0"))));
    CHECK(array->CheckServing() == absl::OkStatus());
  }
  CHECK(release() == absl::OkStatus());
}

TEST_CASE_METHOD(WithShutOut,
                 "on Ceph: an image is opened anew only by a gateway that the record says has the array") {
  GatewayRecord other = ReadGatewayRecord(*pool, options.name).value().value();
  ++other.epoch;
  other.holder = "another.boot";
  others_record = FormatGatewayRecord(options.name, other);
  record_for_real = Library().rados_read;
  {
    const ReplacedCall read(Library().rados_read, ReadOthers);
    ShutOut();
    CHECK(Eventually([&] { return !Writes(); }));
    CheckWritesNothing();
    CHECK(!absl::StrContains(Rbd("status " + ImageOf(volume)), "watcher="));
  }
  CheckIsOpenAnew();
}

// It has the array when it looks, and no more when it has opened the image.
TEST_CASE_METHOD(
    WithShutOut,
    "on Ceph: an image that is opened anew while another gateway takes the array lets no node in") {
  {
    change_for_real = Library().rados_write_op_operate;
    const ReplacedCall write(Library().rados_write_op_operate, RefuseRecord);
    ShutOut();
    CHECK(Eventually([&] {
      const std::string status = Rbd("status " + ImageOf(volume));
      return absl::StrContains(status, "watcher=") && !absl::StrContains(status, *clients.begin());
    }));
    CheckWritesNothing();
    CHECK(Registered() == clients);
  }
  CheckIsOpenAnew();
}

// Nobody renews it, and a tgtd that was forgotten lives on.
TEST_CASE_METHOD(WithASecond, "on Ceph: the clients of the gateway before are shut out for a year") {
  const std::string list = directory / "blocklist";
  const auto clients = ReadGatewayRecord(*pool, options.name).value().value().clients;
  REQUIRE(second.Open() == absl::OkStatus());
  Run(absl::StrCat("ceph --conf ", Conf(), " osd blocklist ls > ", list));
  std::map<std::string, std::string> until;
  std::ifstream file(list);
  for (std::string address, end; file >> address >> end;) until[address] = end;
  for (const ClientAddress& each : clients) {
    INFO(each << " until " << until[each]);
    absl::Time end;
    std::string error;
    REQUIRE(absl::ParseTime("%Y-%m-%dT%H:%M:%E*S%Ez", until[each], &end, &error));
    CHECK(end > absl::Now() + absl::Hours(364 * 24));
  }
  second.Close();
}

TEST_CASE_METHOD(OnCeph,
                 "on Ceph: a portal that is open beside the gateway's is warned of, while it serves") {
  const uint16_t port = FreePort();
  const TakenPort left(port);
  options.peer_portals = {absl::StrCat("127.0.0.1:", port)};
  options.ceph.peers_every = absl::Milliseconds(500);
  const CapturedLog log(directory / "log");
  Reopen();
  CHECK(Eventually([&] { return absl::StrContains(log.Text(), "a tgtd of another gateway lets nodes in"); }));
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a host that has the array again after weeks forgets no heartbeat LUN") {
  options.ceph.takeover_after = absl::Seconds(4);
  const auto before = cluster->fences().OpenHeartbeatLun({kA});
  REQUIRE(before.status() == absl::OkStatus());
  cluster.reset();
  array.reset();
  {
    ArrayFixture second;
    second.options.name = options.name;
    second.options.ceph = options.ceph;
    REQUIRE(second.Open() == absl::OkStatus());
  }
  Run(absl::StrCat("touch -d '8 days ago' ", options.pool_dir, "/heartbeat_luns/*"));
  Reopen();
  absl::SleepFor(absl::Seconds(1));  // some looks
  const auto after = cluster->fences().OpenHeartbeatLun({kA});
  REQUIRE(after.status() == absl::OkStatus());
  CHECK(after->target == before->target);
}

TEST_CASE_METHOD(OnCeph, "on Ceph: a gateway takes an array of many volumes, of which one is damaged") {
  constexpr size_t kVolumes = 20;
  options.ceph.takeover_after = absl::Seconds(4);
  std::vector<Connection> connections;
  std::vector<VolumeId> volumes;
  for (size_t i = 0; i < kVolumes; ++i) {
    volumes.push_back(Make(absl::StrCat("v", i), 4));
    REQUIRE(Login(volumes.back())->Write(0, static_cast<char>('a' + i)));
  }
  for (const VolumeId& volume : volumes) {
    const auto grants = cluster->grants().ListGrants({volume, {}});
    REQUIRE(grants.status() == absl::OkStatus());
    connections.push_back(grants->front().connection);
  }
  cluster.reset();
  array.reset();
  const size_t bad = kVolumes / 2;
  const Damage damage(*this, volumes[bad]);
  ArrayFixture second;
  second.options.name = options.name;
  second.options.ceph = options.ceph;
  REQUIRE(second.Open() == absl::OkStatus());
  for (size_t i = 0; i < kVolumes; ++i) {
    connections[i].portal = second.options.portals.front();
    const auto initiator = PlainInitiator::Login(connections[i]);
    CHECK(initiator.ok() == (i != bad));
    CHECK_FALSE(absl::IsPermissionDenied(initiator.status()));  // which is for good
    if (initiator.ok()) CHECK((*initiator)->Read(0) == static_cast<char>('a' + i));
  }
  damage.Repair();
  CHECK(Eventually([&] {
    const auto initiator = PlainInitiator::Login(connections[bad]);
    return initiator.ok() && (*initiator)->Read(0) == static_cast<char>('a' + bad);
  }));
}

}  // namespace lunkeeper::testing
