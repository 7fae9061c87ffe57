// What is kept of a supervisor's volumes, and what the next one is given of it. The descriptors are no
// devices here.

#include "devices/datapath/duplicates.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"

namespace lunkeeper {
namespace {

UniqueFd OpenNothing() { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

struct KeptTable {
  KeptTable() {
    for (const char* name : {"a", "b"}) {
      datapath::Attach options;
      options.set_volume(name);
      SupervisedVolume& volume = **table.AddVolume(options);
      volume.in_call = false;
      volume.fuse.device = OpenNothing();
      volume.fuse.can_resend = true;
      volume.loop.fd = OpenNothing();
      volume.loop.number = 5000 + static_cast<int>(volume.slot);
    }
    const auto offered = duplicates.Offer(table.volumes(), 1);
    REQUIRE(offered.ok());
    for (const int parcel : *offered) parcels.emplace_back(::dup(parcel));
  }
  SupervisedVolume& a() { return *table.Find(VolumeId("a")); }
  void Update() { duplicates.Update(table.volumes(), 1); }
  void Refresh() { duplicates.Refresh(table.volumes(), 1); }
  absl::StatusOr<VolumesState> Read() { return ReadDuplicates(parcels); }

  SharedMemory memory = *SharedMemory::Create();
  VolumeTable table{memory.state()};
  Duplicates duplicates{memory};
  std::vector<UniqueFd> parcels;
};

TEST_CASE("an edition that could not be written is written again") {
  KeptTable kept;
  kept.a().reason = std::string(1 << 20, 'x');  // larger than a message may be
  kept.Update();
  CHECK(absl::IsNotFound(kept.Read().status()));
  kept.Refresh();
  CHECK(absl::IsNotFound(kept.Read().status()));
  kept.a().reason.clear();
  kept.Refresh();
  CHECK(kept.Read()->volumes.size() == 2);
}

TEST_CASE("what an older predecessor voids as it ends is told to the store again") {
  KeptTable kept;
  for (const char* name : {"a", "b"})
    ++kept.memory.state()->slots[kept.table.Find(VolumeId(name))->slot].attachment;
  CHECK(kept.Read()->volumes.empty());
  kept.Refresh();
  CHECK(kept.Read()->volumes.size() == 2);
}

// Its descriptors would keep the child alive, and the child its container, in which the next one starts.
TEST_CASE("of a volume that a child may wait for only a record is kept") {
  KeptTable kept;
  kept.a().has_child = true;
  kept.Update();
  const auto read = kept.Read();
  REQUIRE(read.ok());
  const SupervisedVolume& found = *read->volumes.at(VolumeId("a"));
  CHECK(found.cut_off);
  CHECK(found.lost());
  CHECK_FALSE(found.fuse.device);
  CHECK_FALSE(found.fuse.root);
  CHECK_FALSE(found.loop.fd);
  CHECK(found.loop.number == -1);  // its device is an orphan, if somebody has it open
  CHECK_FALSE(read->volumes.at(VolumeId("b"))->cut_off);
  CHECK(read->volumes.at(VolumeId("b"))->loop.fd);
}

TEST_CASE("what the next detach has to say once more is kept before the first one has answered") {
  KeptTable kept;
  kept.a().in_call = true;
  kept.a().loss = "lost";
  kept.Update();
  CHECK(kept.Read()->volumes.at(VolumeId("a"))->loss == "lost");
}

TEST_CASE("a record is kept until it is told, however many supervisors are killed") {
  KeptTable kept;
  kept.a().cut_off = true;
  kept.a().service = SupervisedVolume::Service::kLost;
  kept.a().fuse = FuseMount{};
  kept.a().loop = LoopDevice{};
  kept.Update();
  CHECK(kept.Read()->volumes.at(VolumeId("a"))->cut_off);
  kept.table.Erase(VolumeId("a"));
  kept.Update();
  CHECK_FALSE(kept.Read()->volumes.contains(VolumeId("a")));
}

TEST_CASE("a message whose descriptors were cut off is none") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd sender(ends[0]), receiver(ends[1]);
  const UniqueFd first = OpenNothing(), second = OpenNothing();
  datapath::DuplicateStoreCall call;
  REQUIRE(SendMessage(sender.get(), call, {first.get(), second.get()}).ok());
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit room_for_one = limit;
  room_for_one.rlim_cur = static_cast<rlim_t>(OpenNothing().get()) + 1;
  ::setrlimit(RLIMIT_NOFILE, &room_for_one);
  std::vector<UniqueFd> fds;
  const absl::Status received = ReceiveMessage(receiver.get(), absl::Now(), &call, &fds);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(absl::IsResourceExhausted(received));
  CHECK(fds.empty());
}

}  // namespace
}  // namespace lunkeeper
