// Volumes and snapshots on the real array.

#include "devices/array/tgt/tgt_array.h"

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "devices/array/testing/modify_contract.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/held_at.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1");

GrantRequest For(const VolumeId& volume, const NodeId& node) {
  return {.volume = volume, .node = node, .access = Access::kExclusive, .owner = GrantOwner::kNode};
}

uint64_t AllocatedBytes(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 ? static_cast<uint64_t>(file.st_blocks) * 512 : 0;
}

// A host on an XFS that can reflink.
struct ArrayOnXfs {
  ArrayOnXfs() : xfs(directory.path(), "400M"), fixture(xfs.path() + "/pool") {
    REQUIRE(fixture.Open() == absl::OkStatus());
    array = fixture.Cluster();
  }
  std::string Path(const VolumeId& id) const { return fixture.options.pool_dir + "/volumes/" + id.value(); }
  TempDir directory;
  LoopMount xfs;
  ArrayFixture fixture;
  std::unique_ptr<Array> array;
};

struct OnExt4 : ArrayFixture {
  OnExt4() {
    options.copy_wait = absl::Seconds(20);
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
  }
  std::string Path(const VolumeId& id) const { return options.pool_dir + "/volumes/" + id.value(); }
  std::unique_ptr<Array> array;
};

TEST_CASE_METHOD(OnExt4, "a volume is modified, and stays so when the array's program ends") {
  CheckModify(*array, kA);
  const auto before = array->volumes().ListVolumes("", 0);
  array.reset();
  Close();
  REQUIRE(Open() == absl::OkStatus());
  array = Cluster();
  const auto after = array->volumes().ListVolumes("", 0);
  REQUIRE((after.ok() && after->items.size() == before->items.size()));
  for (size_t i = 0; i < after->items.size(); ++i) CHECK(after->items[i].spec == before->items[i].spec);
}

TEST_CASE_METHOD(OnExt4, "a volume is made, granted, written, released and deleted") {
  const auto volume = array->volumes().CreateVolume(Spec("v", 64));
  REQUIRE(volume.ok());
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  {
    const auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    CHECK((*initiator)->SizeBytes() == 64 << 20);
    CHECK((*initiator)->Identity().serial == volume->serial);
    CHECK((*initiator)->Identity().vendor == "LUNKEEPR");
    std::string boot_id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
    CHECK((*initiator)->Identity().product.substr(0, 8) == boot_id.substr(0, 8));
    CHECK((*initiator)->Write(7, 'x'));
    CHECK((*initiator)->Read(7) == 'x');
    CHECK(absl::IsFailedPrecondition(array->volumes().DeleteVolume(volume->id)));
    CHECK(array->grants().ReleaseGrant(volume->id, kA, GrantOwner::kNode, kAnyGeneration) ==
          absl::OkStatus());
    CHECK_FALSE((*initiator)->Write(7, 'y'));
  }
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grant->connection).status()));
  CHECK(array->volumes().DeleteVolume(volume->id) == absl::OkStatus());
  CHECK(array->volumes().DeleteVolume(volume->id) == absl::OkStatus());
  CHECK(array->volumes().ListVolumes("", 0)->items.empty());
  CHECK_FALSE(std::filesystem::exists(Path(volume->id)));
}

TEST_CASE_METHOD(OnExt4,
                 "a volume's name is the key: the same is answered with the same, another is refused") {
  VolumeSpec spec = Spec("v", 16);
  spec.size_bytes -= 100;
  const auto first = array->volumes().CreateVolume(spec);
  REQUIRE(first.ok());
  CHECK(first->spec.size_bytes == 16 << 20);
  CHECK(array->volumes().CreateVolume(spec)->id == first->id);
  CHECK(array->volumes().CreateVolume(Spec("v", 16))->id == first->id);
  CHECK(absl::IsAlreadyExists(array->volumes().CreateVolume(Spec("v", 17)).status()));
  spec.durability = Durability::kSync;
  CHECK(absl::IsAlreadyExists(array->volumes().CreateVolume(spec).status()));
  REQUIRE(array->volumes().ExpandVolume(first->id, 32 << 20).ok());
  CHECK(array->volumes().CreateVolume(Spec("v", 16))->spec.size_bytes == 32 << 20);
  CHECK(absl::IsInvalidArgument(array->volumes().CreateVolume(Spec("", 16)).status()));
}

TEST_CASE_METHOD(OnExt4,
                 "sizes that the pool can never give are out of range, and what is left is exhausted") {
  VolumeSpec huge = Spec("huge", 0);
  huge.size_bytes = UINT64_MAX;
  CHECK(absl::IsOutOfRange(array->volumes().CreateVolume(huge).status()));
  const auto capacity = array->volumes().GetCapacity();
  REQUIRE(capacity.ok());
  VolumeSpec thick = Spec("thick", 0);
  thick.provisioning = Provisioning::kThick;
  thick.size_bytes = capacity->total_bytes + (1 << 20);
  CHECK(absl::IsOutOfRange(array->volumes().CreateVolume(thick).status()));
  thick.size_bytes = capacity->available_bytes;
  CHECK(absl::IsResourceExhausted(array->volumes().CreateVolume(thick).status()));
  const auto least = array->volumes().CreateVolume(Spec("least", 0));
  REQUIRE(least.ok());
  CHECK(least->spec.size_bytes == capacity->smallest_volume_bytes);
  CHECK(absl::IsOutOfRange(array->volumes().ExpandVolume(least->id, UINT64_MAX).status()));
}

TEST_CASE_METHOD(OnExt4,
                 "a thick volume has its space from the start, a thin one takes it as it is written") {
  VolumeSpec spec = Spec("thick", 32);
  spec.provisioning = Provisioning::kThick;
  const auto thick = array->volumes().CreateVolume(spec);
  const auto thin = array->volumes().CreateVolume(Spec("thin", 32));
  REQUIRE(thick.ok());
  REQUIRE(thin.ok());
  CHECK(AllocatedBytes(Path(thick->id)) >= 32 << 20);
  CHECK(AllocatedBytes(Path(thin->id)) == 0);
  REQUIRE(array->volumes().ExpandVolume(thick->id, 40 << 20).ok());
  CHECK(AllocatedBytes(Path(thick->id)) >= 40 << 20);
}

TEST_CASE_METHOD(OnExt4, "volumes and snapshots are listed in pages, each once") {
  std::set<VolumeId> made, listed;
  VolumeId source;
  for (int i = 0; i < 7; ++i)
    made.insert(source = array->volumes().CreateVolume(Spec("v" + std::to_string(i), 1))->id);
  std::string token;
  do {
    const auto page = array->volumes().ListVolumes(token, 3);
    REQUIRE(page.ok());
    CHECK(page->items.size() <= 3);
    for (const Volume& volume : page->items) CHECK(listed.insert(volume.id).second);
    token = page->next_token;
  } while (!token.empty());
  CHECK(listed == made);
  CHECK(absl::IsAborted(array->volumes().ListVolumes("nonsense", 3).status()));
  REQUIRE(array->volumes().CreateSnapshot("s", source).ok());
  CHECK(array->volumes().ListSnapshots(source, "", 0)->items.size() == 1);
  CHECK(array->volumes().ListSnapshots({}, "", 0)->items.size() == 1);
  CHECK(array->volumes()
            .ListSnapshots(*made.begin() == source ? *made.rbegin() : *made.begin(), "", 0)
            ->items.empty());
  CHECK(absl::IsAborted(array->volumes().ListSnapshots({}, "nonsense", 3).status()));
}

TEST_CASE_METHOD(OnExt4, "without reflinks snapshots and clones are copies, of volumes that are not in use") {
  const auto volume = array->volumes().CreateVolume(Spec("v", 64));
  REQUIRE(volume.ok());
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  {
    const auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE((*initiator)->Write(100, 'o'));
  }
  CHECK(absl::IsFailedPrecondition(array->volumes().CreateSnapshot("s", volume->id).status()));
  VolumeSpec spec = Spec("clone", 80);
  spec.source_volume = volume->id;
  CHECK(absl::IsFailedPrecondition(array->volumes().CreateVolume(spec).status()));
  REQUIRE(array->grants().ReleaseGrant(volume->id, kA, GrantOwner::kNode, kAnyGeneration).ok());
  const auto snapshot = array->volumes().CreateSnapshot("s", volume->id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(snapshot->ready);
  const auto clone = array->volumes().CreateVolume(spec);
  REQUIRE(clone.status() == absl::OkStatus());
  CHECK(AllocatedBytes(Path(clone->id)) < 8 << 20);
  const auto clone_grant = array->grants().AcquireGrant(For(clone->id, kA), absl::ZeroDuration());
  REQUIRE(clone_grant.ok());
  const auto initiator = PlainInitiator::Login(clone_grant->connection);
  CHECK((*initiator)->SizeBytes() == 80 << 20);
  CHECK((*initiator)->Read(100) == 'o');
}

TEST_CASE_METHOD(ArrayOnXfs,
                 "a snapshot keeps what was there, and outlives its volume, as clones outlive it") {
  const auto volume = array->volumes().CreateVolume(Spec("v", 32));
  REQUIRE(volume.ok());
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  const auto initiator = PlainInitiator::Login(grant->connection);
  REQUIRE(initiator.ok());
  REQUIRE((*initiator)->Write(5, 'a'));
  const auto snapshot = array->volumes().CreateSnapshot("s", volume->id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(array->volumes().CreateSnapshot("s", volume->id)->id == snapshot->id);
  REQUIRE((*initiator)->Write(5, 'b'));
  const auto other = array->volumes().CreateVolume(Spec("other", 32));
  CHECK(absl::IsAlreadyExists(array->volumes().CreateSnapshot("s", other->id).status()));
  REQUIRE(array->grants().ReleaseGrant(volume->id, kA, GrantOwner::kNode, kAnyGeneration).ok());
  REQUIRE(array->volumes().DeleteVolume(volume->id).ok());
  VolumeSpec spec = Spec("clone", 16);
  spec.source_snapshot = snapshot->id;
  CHECK(absl::IsOutOfRange(array->volumes().CreateVolume(spec).status()));
  spec.size_bytes = 48 << 20;
  const auto clone = array->volumes().CreateVolume(spec);
  REQUIRE(clone.status() == absl::OkStatus());
  REQUIRE(array->volumes().DeleteSnapshot(snapshot->id).ok());
  REQUIRE(array->volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(absl::IsNotFound(array->volumes().GetSnapshot(snapshot->id).status()));
  const auto clone_grant = array->grants().AcquireGrant(For(clone->id, kB), absl::ZeroDuration());
  REQUIRE(clone_grant.ok());
  CHECK((*PlainInitiator::Login(clone_grant->connection))->Read(5) == 'a');
  spec.name = "from nothing";
  CHECK(absl::IsNotFound(array->volumes().CreateVolume(spec).status()));
}

// Its file system would grow, too, and the copy cut that off at the old size.
TEST_CASE("a volume that grows while it is copied is not cut off in the copy") {
  const bool clone = GENERATE(false, true);
  const HeldAt held(clone ? "array.create.file_made" : "array.snapshot.file_made");
  ArrayOnXfs on;
  VolumeStore& volumes = on.array->volumes();
  const VolumeId source = volumes.CreateVolume(Spec("v", 16)).value().id;
  held.Arm();
  absl::Status copied;
  std::thread copy([&] {
    VolumeSpec spec = Spec("copy", 16);
    spec.source_volume = source;
    copied = clone ? volumes.CreateVolume(spec).status() : volumes.CreateSnapshot("s", source).status();
  });
  CHECK(Eventually([&] { return held.IsReached(); }));
  const absl::Status grown = volumes.ExpandVolume(source, 32 << 20).status();
  held.LetGo();
  copy.join();
  if (clone) {
    CHECK(grown == absl::OkStatus());
    CHECK(absl::IsOutOfRange(copied));
    CHECK(volumes.ListVolumes("", 0)->items.size() == 1);
  } else {
    CHECK(absl::IsAborted(grown));
    CHECK(copied == absl::OkStatus());
    CHECK(volumes.ExpandVolume(source, 32 << 20).ok());
  }
}

// As a growth leaves it that is cut short: the file has grown, and the catalogue does not know. tgtd shows
// the larger file to the next node, whose file system grows.
TEST_CASE_METHOD(ArrayOnXfs, "a copy of a volume whose growth was cut short is of its whole file") {
  const VolumeId id = array->volumes().CreateVolume(Spec("v", 16)).value().id;
  std::filesystem::resize_file(Path(id), 32 << 20);
  const auto grant = array->grants().AcquireGrant(For(id, kA), absl::ZeroDuration());
  const auto initiator = PlainInitiator::Login(grant->connection);
  REQUIRE(initiator.ok());
  constexpr uint64_t kBeyond = (20 << 20) / 512;
  REQUIRE((*initiator)->Write(kBeyond, 'x'));
  VolumeSpec from_volume = Spec("clone", 16), from_snapshot = Spec("restored", 32);
  from_volume.source_volume = id;
  CHECK(absl::IsOutOfRange(array->volumes().CreateVolume(from_volume).status()));
  from_volume.size_bytes = 32 << 20;
  const auto snapshot = array->volumes().CreateSnapshot("s", id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(snapshot->size_bytes == 32 << 20);
  const auto group = array->groups().CreateGroup("g", {id});
  REQUIRE(group.status() == absl::OkStatus());
  CHECK(group->snapshots.front().size_bytes == 32 << 20);
  for (const SnapshotId& source : {SnapshotId(), snapshot->id, group->snapshots.front().id}) {
    VolumeSpec spec = source.empty() ? from_volume : from_snapshot;
    spec.name += source.value();
    spec.source_snapshot = source;
    const auto copy = array->volumes().CreateVolume(spec);
    REQUIRE(copy.status() == absl::OkStatus());
    const auto of_copy = array->grants().AcquireGrant(For(copy->id, kB), absl::ZeroDuration());
    REQUIRE(of_copy.ok());
    CHECK((*PlainInitiator::Login(of_copy->connection))->Read(kBeyond) == 'x');
  }
  CHECK(array->volumes().ExpandVolume(id, 32 << 20)->spec.size_bytes == 32 << 20);
}

// A writer fills blocks one after another with a rising number; a snapshot of one moment holds no number
// behind a hole.
TEST_CASE_METHOD(ArrayOnXfs, "a snapshot of a volume in use is of one moment") {
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  const auto initiator = PlainInitiator::Login(grant->connection);
  REQUIRE(initiator.ok());
  constexpr int kBlocks = 64;
  std::atomic<bool> stop{false}, failed{false};
  std::thread writer([&] {
    for (int round = 1; !stop; ++round) {
      for (int block = 0; block < kBlocks && !failed; ++block) {
        failed = !(*initiator)->Write(static_cast<uint64_t>(block) * 8, static_cast<char>(round % 100));
      }
    }
  });
  for (int i = 0; i < 30; ++i) {
    const auto snapshot = array->volumes().CreateSnapshot("s" + std::to_string(i), volume->id);
    REQUIRE(snapshot.status() == absl::OkStatus());
    std::ifstream file(fixture.options.pool_dir + "/snapshots/" + snapshot->id.value(), std::ios::binary);
    int steps = 0, previous = -1;
    for (int block = 0; block < kBlocks; ++block) {
      file.seekg(block * 8 * 512);
      const int number = file.get();
      steps += previous >= 0 && number != previous ? 1 : 0;
      previous = number;
    }
    CHECK(steps <= 1);
  }
  stop = true;
  writer.join();
  CHECK_FALSE(failed);
}

TEST_CASE_METHOD(ArrayOnXfs, "a volume grows under sessions that write, and no write fails on the medium") {
  const auto volume = array->volumes().CreateVolume(Spec("v", 16));
  const auto grant = array->grants().AcquireGrant(For(volume->id, kA), absl::ZeroDuration());
  std::vector<std::thread> writers;
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, refused{0}, written{0};
  for (uint64_t which = 0; which < 3; ++which) {
    writers.emplace_back([&, which] {
      while (!stop) {
        const auto initiator = PlainInitiator::Login(grant->connection);
        refused += absl::IsPermissionDenied(initiator.status()) ? 1 : 0;
        absl::Status status = initiator.status();
        for (; status.ok() && !stop; ++written) status = (*initiator)->TryWrite(which, 'w');
        failed += absl::IsInternal(status) ? 1 : 0;
      }
    });
  }
  for (uint64_t size = 17; size < 117; ++size) {
    const int before = written;
    REQUIRE(array->volumes().ExpandVolume(volume->id, size << 20).status() == absl::OkStatus());
    REQUIRE(Eventually([&] { return written > before + 3; }));
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(failed == 0);
  CHECK(refused == 0);
  CHECK((*PlainInitiator::Login(grant->connection))->SizeBytes() == 116 << 20);
  CHECK(array->volumes().ExpandVolume(volume->id, 1 << 20)->spec.size_bytes == 116 << 20);
}

}  // namespace
}  // namespace lunkeeper::testing
