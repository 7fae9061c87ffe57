// Backups that broke off and go on, and what becomes of the pool meanwhile. Needs root.
#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/wall_clock.h"
#include "devices/array/tgt/testing/backup_fixture.h"

namespace lunkeeper::testing {
namespace {

struct BrokenOff : PoolOnXfs {
  // Begins a backup that ends after so many images.
  void BreakOffAfter(uint64_t images) {
    REQUIRE(absl::IsCancelled(fixture.array->BackUp(
        backup, [&](const BackupProgress& progress) { return progress.done_images < images; })));
  }
  void Write(const VolumeId& volume, char fill) {
    REQUIRE(Use(*cluster, volume, kA)->Write(0, fill));
    REQUIRE(cluster->grants().ReleaseGrant(volume, kA, GrantOwner::kNode, kAnyGeneration).ok());
  }
  std::string InPool(const VolumeId& volume) const { return pool + "/volumes/" + volume.value(); }
  absl::Status BackUp() { return fixture.array->BackUp(backup, Watch); }
  // The backup's volume as another host shows it.
  std::optional<char> ReadRestored(const VolumeId& volume) const {
    Restored elsewhere(backup);
    return Use(*elsewhere.Accept(), volume, kB)->Read(0);
  }
};

// A disk for backups that has room for the pool's one volume, and not for twice as much.
struct SmallDisk : BrokenOff {
  SmallDisk() { Run("dd if=/dev/urandom conv=notrunc bs=1M count=16 2>/dev/null of=" + InPool(volume.id)); }

  const Volume volume = Make("v");
  const TempDir small;
  const LoopMount disk{small.path(), "24M", "mkfs.ext4 -q -O ^has_journal"};
  const std::string folder = disk.path() + "/backup";
};

}  // namespace

TEST_CASE_METHOD(BrokenOff,
                 "a backup that goes on copies a volume anew that was written since, and no other") {
  std::set<std::string> ids;
  for (const char* name : {"1", "2", "3"}) ids.insert(MakeWritten(name, 'o').id.value());
  BreakOffAfter(2);
  const VolumeId written(*ids.begin()), still(*std::next(ids.begin()));
  struct stat before {};
  struct stat after {};
  REQUIRE(::stat(BackedUp(still).c_str(), &before) == 0);
  Write(written, 'n');  // of the same size
  REQUIRE(BackUp() == absl::OkStatus());
  REQUIRE(::stat(BackedUp(still).c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  CHECK(ReadRestored(written) == 'n');
}

TEST_CASE_METHOD(BrokenOff, "a backup that goes on keeps the snapshots, also after the host has booted") {
  const Volume source = MakeWritten("source", 'o'), other = MakeWritten("other", 'o');
  const auto snapshot = cluster->volumes().CreateSnapshot("s", source.id);
  REQUIRE(snapshot.ok());
  BreakOffAfter(2);
  cluster.reset();
  fixture.Close();
  std::ofstream(directory.path() + "/boot_id") << "00000000-1111-2222-3333-444444444444\n";
  fixture.options.boot_id_path = directory.path() + "/boot_id";
  REQUIRE(fixture.Open() == absl::OkStatus());
  const std::string kept = backup + "/snapshots/" + snapshot->id.value();
  struct stat before {};
  struct stat after {};
  REQUIRE(::stat(kept.c_str(), &before) == 0);
  uint64_t bytes = 0;
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress& progress) {
    bytes = progress.copied_bytes;
    return true;
  }) == absl::OkStatus());
  REQUIRE(::stat(kept.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);
  CHECK(bytes == 2 * (64 << 10));  // a power cut may have cost a volume's last writes
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(BrokenOff, "a volume whose file has not got its name yet is in a backup") {
  const Volume volume = MakeWritten("v", 'x');
  // As a crash leaves it, or a pool without room for the longer name.
  for (const char* suffix : {".new", ".gone"}) {
    std::filesystem::rename(InPool(volume.id), InPool(volume.id) + suffix);
    REQUIRE(BackUp() == absl::OkStatus());
    CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
    CHECK(ReadRestored(volume.id) == 'x');
    std::filesystem::rename(InPool(volume.id) + suffix, InPool(volume.id));
    std::filesystem::remove_all(backup);
  }
}

TEST_CASE_METHOD(BrokenOff, "a backup without a volume that the pool has lost is not called whole") {
  const Volume lost = MakeWritten("lost", 'x'), kept = MakeWritten("kept", 'k');
  std::filesystem::remove(InPool(lost.id));
  const absl::Status refused = BackUp();
  CHECK(absl::IsDataLoss(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(lost.id.value()));
  CHECK_FALSE(VerifyBackup(backup, Watch).ok());
  REQUIRE(cluster->volumes().DeleteVolume(lost.id).ok());
  CHECK(BackUp() == absl::OkStatus());
  CHECK(ReadRestored(kept.id) == 'k');
}

TEST_CASE_METHOD(BrokenOff, "a backup that was killed between removing a file and saying so goes on") {
  std::set<std::string> ids;
  for (const char* name : {"1", "2"}) ids.insert(MakeWritten(name, 'o').id.value());
  BreakOffAfter(1);
  const VolumeId deleted(*ids.begin());
  std::filesystem::remove(BackedUp(deleted));
  REQUIRE(cluster->volumes().DeleteVolume(deleted).ok());
  REQUIRE(BackUp() == absl::OkStatus());
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(BrokenOff, "a backup has all of a group of snapshots or nothing of it") {
  const Volume a = MakeWritten("a", 'a'), b = MakeWritten("b", 'b');
  const auto group = cluster->groups().CreateGroup("g", {a.id, b.id});
  REQUIRE(group.ok());
  uint64_t done = 0;
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress& progress) {
    if (progress.done_images == 1 && std::exchange(done, 1) == 0)
      REQUIRE(cluster->groups().DeleteGroup(group->id).ok());
    return true;
  }) == absl::OkStatus());
  REQUIRE(done == 1);
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  CHECK(std::filesystem::is_empty(backup + "/snapshots"));
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().ListSnapshots({}, "", 0)->items.empty());
  CHECK(absl::IsNotFound(restored->groups().GetGroup(group->id).status()));
}

TEST_CASE_METHOD(SmallDisk, "what a broken-off copy takes is room for the next one") {
  const std::string partial = folder + "/volumes/" + volume.id.value();
  REQUIRE(absl::IsCancelled(fixture.array->BackUp(
      folder, [](const BackupProgress& progress) { return progress.copied_bytes == 0; })));
  Run("dd if=/dev/urandom bs=1M count=12 2>/dev/null of=" + partial);
  CHECK(fixture.array->BackUp(folder, Watch) == absl::OkStatus());
  CHECK(VerifyBackup(folder, Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(SmallDisk, "a backup whose disk runs full says which disk, and goes on") {
  bool filled = false;
  const absl::Status full = fixture.array->BackUp(folder, [&](const BackupProgress& progress) {
    if (progress.copied_bytes > 0 && !std::exchange(filled, true)) disk.Fill();
    return true;
  });
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()), Catch::Contains(folder) && !Catch::Contains("grow the pool"));
  // It goes on also if what has filled the disk is the image that was being copied.
  std::filesystem::rename(disk.path() + "/filler", folder + "/volumes/" + volume.id.value());
  CHECK(fixture.array->BackUp(folder, Watch) == absl::OkStatus());
  CHECK(VerifyBackup(folder, Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(BrokenOff, "a backup touches nothing that its folder only leads to") {
  MakeWritten("v", 'x');
  BreakOffAfter(0);
  const std::string elsewhere = directory.path() + "/elsewhere";
  for (const char* kind : {"volumes", "snapshots"}) {
    const std::string place = backup + "/" + kind;
    Run("rm -r " + place + " && mkdir -p " + elsewhere + " && echo mine > " + elsewhere +
        "/precious && ln -s " + elsewhere + " " + place);
    const absl::Status refused = BackUp();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains(place));
    CHECK(std::filesystem::exists(elsewhere + "/precious"));
    Run("rm " + place);
  }
  CHECK(BackUp() == absl::OkStatus());
}

TEST_CASE_METHOD(BrokenOff, "a folder that others may write to is closed to them") {
  MakeWritten("v", 'x');
  Run("mkdir -m 0777 " + backup);
  REQUIRE(BackUp() == absl::OkStatus());
  struct stat folder {};
  REQUIRE(::stat(backup.c_str(), &folder) == 0);
  CHECK((folder.st_mode & 0777) == 0700);
}

TEST_CASE_METHOD(BrokenOff,
                 "a backup lets go of a volume when the pool runs full, also while its disk hangs") {
  const Volume volume = Make("v");
  const std::string write =
      "dd conv=notrunc bs=1M count=16 2>/dev/null if=/dev/urandom of=" + InPool(volume.id);
  Run(write);
  const std::string other = directory.path() + "/other";
  Run("mkdir " + other);
  const LoopMount disk(other, "64M", "mkfs.ext4 -q");
  std::atomic<bool> hangs = false;
  absl::Status made;
  const WallClockAhead ahead(absl::Hours(1));  // a wait by the wall clock would be so much longer
  AwaitAbseilsClock();
  std::thread backing([&] {
    made = fixture.array->BackUp(disk.path() + "/backup", [&](const BackupProgress& progress) {
      if (progress.copied_bytes > 0 && !hangs.exchange(true)) Run("fsfreeze -f " + disk.path());
      return true;
    });
  });
  CHECK(Eventually([&] { return hangs.load(); }));
  Run(write + " && sync -f " + pool);  // what was there before is still held
  const auto room = [&] { return std::filesystem::space(pool).available; };
  Run(absl::StrCat("fallocate -l ", room() - (4 << 20), " ", mount.path(), "/filler"));
  CHECK(Eventually([&] { return room() > 12 << 20; }));
  Run("fsfreeze -u " + disk.path());
  backing.join();
  CHECK(absl::IsResourceExhausted(made));
  CHECK_THAT(std::string(made.message()), Catch::Contains("grow the pool"));
}

TEST_CASE_METHOD(BrokenOff, "a backup leaves nothing in the page cache that others need") {
  const Volume volume = Make("v");
  Run("dd conv=notrunc bs=1M count=16 2>/dev/null if=/dev/urandom of=" + InPool(volume.id));
  REQUIRE(BackUp() == absl::OkStatus());
  // In pages; some may have been in use just then.
  Run("test $(fincore -n -o PAGES " + BackedUp(volume.id) + ") -lt 512");
}

TEST_CASE("a subvolume of the pool's own btrfs is no other file system") {
  const TempDir directory;
  const LoopMount mount(directory.path(), "256M", "mkfs.btrfs -q");
  ArrayFixture fixture(mount.path() + "/pool");
  REQUIRE(fixture.Open() == absl::OkStatus());
  Run("btrfs subvolume create " + mount.path() + "/other >/dev/null");
  const absl::Status refused = fixture.array->BackUp(mount.path() + "/other/backup", Watch);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("own file system"));
  // On another one it is made, from a pool in a subvolume as well.
  CHECK(fixture.array->BackUp(directory.path() + "/backup", Watch) == absl::OkStatus());
}

}  // namespace lunkeeper::testing
