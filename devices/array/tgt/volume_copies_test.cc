// A copy that fails while its catalogue takes no change.
#include "devices/array/tgt/volume_copies.h"

#include <catch2/catch.hpp>

#include "base/testing/test_host.h"
#include "devices/array/tgt/pool.h"

namespace lunkeeper {
namespace {

struct Copies {
  // A copy, if it has a source.
  VolumeRow Add(const std::string& name, const VolumeId& source = VolumeId()) {
    VolumeRow row;
    row.cluster = ClusterId("c1");
    row.copying = !source.empty();
    row.volume.id = VolumeId("a1-v" + name);
    row.volume.spec.name = name;
    row.volume.spec.size_bytes = 1 << 20;
    row.volume.spec.source_volume = source;
    REQUIRE(catalogue->volumes().InsertVolume(row) == absl::OkStatus());
    return row;
  }
  size_t CountVolumes() { return catalogue->volumes().ListAllVolumes()->size(); }

  const testing::TempDir directory;
  const std::unique_ptr<Pool> pool = Pool::Open(directory.path() + "/pool").value();
  const std::unique_ptr<Catalogue> catalogue = Catalogue::Open(pool->CataloguePath(), "a1").value();
  const PoolRoom room{{}, *pool, *catalogue};
  VolumeGates gates;
  VolumeCopies copies{*catalogue, *pool, room, gates};
};

}  // namespace

// What the catalogue refuses here for another copy of it, it refuses elsewhere for want of room.
TEST_CASE("a failed copy goes as soon as its row can be deleted") {
  Copies f;
  const VolumeRow failed = f.Add("failed", f.Add("source").volume.id);
  const VolumeRow held_by = f.Add("held by", failed.volume.id);
  f.copies.BeginVolumeCopy(failed, f.directory.path() + "/nothing");
  const std::string id = failed.volume.id.value();
  CHECK(absl::IsAborted(f.copies.WaitForCopy(id, absl::Now() + absl::Milliseconds(200))));
  CHECK(f.CountVolumes() == 3);
  REQUIRE(f.catalogue->volumes().SetVolumeReady(held_by.volume.id).ok());
  CHECK(absl::IsNotFound(f.copies.WaitForCopy(id, absl::Now() + absl::Minutes(1))));
  CHECK(f.CountVolumes() == 2);
}

TEST_CASE("an array stops while the row of a failed copy cannot be deleted") {
  Copies f;
  const VolumeRow failed = f.Add("failed", f.Add("source").volume.id);
  f.Add("held by", failed.volume.id);
  f.copies.BeginVolumeCopy(failed, f.directory.path() + "/nothing");
  CHECK(
      absl::IsAborted(f.copies.WaitForCopy(failed.volume.id.value(), absl::Now() + absl::Milliseconds(200))));
}

}  // namespace lunkeeper
