// A pool is copied while it serves, and the copy is served in its place. Needs root.
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/array/tgt/backup_manifest.h"
#include "devices/array/tgt/sqlite.h"
#include "devices/array/tgt/testing/backup_fixture.h"

namespace lunkeeper::testing {
namespace {

// Writes a letter to one block, then to another, again and again: a copy of one moment has the same letter in
// both, or the next one in the first.
class OrderedWriter {
 public:
  static constexpr uint64_t kFirst = 3, kSecond = 30000;
  explicit OrderedWriter(PlainInitiator& initiator)
      : thread_([this, &initiator] {
          for (int round = 0; !stop_ && good_; ++round) {
            const char letter = static_cast<char>('a' + round % 26);
            good_ = initiator.Write(kFirst, letter) && initiator.Write(kSecond, letter);
          }
        }) {}
  // Whether all writes went well.
  bool Stop() {
    stop_ = true;
    thread_.join();
    return good_;
  }
  static bool IsOrdered(char first, char second) {
    return first == second || first == (second == 'z' ? 'a' : second + 1);
  }

 private:
  std::atomic<bool> stop_ = false, good_ = true;
  std::thread thread_;
};

}  // namespace

TEST_CASE_METHOD(PoolOnXfs,
                 "a backup that was made under a writer is served, and has each volume as of one moment") {
  const Volume busy = Make("busy"), thick = Make("thick", Provisioning::kThick);
  const Volume still = MakeWritten("still", 's');
  const auto snapshot = cluster->volumes().CreateSnapshot("before", still.id);
  REQUIRE(snapshot.ok());
  const auto group = cluster->groups().CreateGroup("g", {still.id, thick.id});
  REQUIRE(group.ok());
  const size_t files = CountFiles();
  const auto initiator = Use(*cluster, busy.id, kA);
  REQUIRE(initiator->Write(OrderedWriter::kFirst, 'a'));
  REQUIRE(initiator->Write(OrderedWriter::kSecond, 'a'));
  OrderedWriter writer(*initiator);
  uint64_t images = 0;
  const absl::Status made = fixture.array->BackUp(backup, [&](const BackupProgress& progress) {
    images = progress.images;
    return true;
  });
  CHECK(writer.Stop());
  REQUIRE(made == absl::OkStatus());
  CHECK(images == 6);
  CHECK(CountFiles() == files);
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().ListVolumes("", 0)->items.size() == 3);
  CHECK(restored->grants().ListGrants({})->empty());
  CHECK(restored->volumes().GetSnapshot(snapshot->id)->ready);
  CHECK(restored->groups().GetGroup(group->id)->snapshots.size() == 2);
  const auto reader = Use(*restored, busy.id, kB);
  const char first = reader->Read(OrderedWriter::kFirst).value_or('!');
  const char second = reader->Read(OrderedWriter::kSecond).value_or('?');
  INFO(first << second);
  CHECK(OrderedWriter::IsOrdered(first, second));
  CHECK(Use(*restored, still.id, kB)->Read(0) == 's');
  Run("cmp " + BackedUp(still.id) + " " + pool + "/volumes/" + still.id.value());
  Run("cmp " + backup + "/snapshots/" + snapshot->id.value() + " " + pool + "/snapshots/" +
      snapshot->id.value());
  struct stat taken {};
  REQUIRE(::stat(BackedUp(thick.id).c_str(), &taken) == 0);
  CHECK(taken.st_blocks * 512 >= 16 << 20);
  // Accepted once, it is a pool as any.
  REQUIRE(elsewhere.Open() == absl::OkStatus());
  CHECK(elsewhere.array->CheckServing().ok());
}

TEST_CASE_METHOD(PoolOnXfs,
                 "what is written to a volume behind and before the place that is copied is not in it") {
  const Volume volume = Make("v");
  const auto initiator = Use(*cluster, volume.id, kA);
  const auto write = [&](char fill) {
    REQUIRE(initiator->Write(OrderedWriter::kFirst, fill));
    REQUIRE(initiator->Write(OrderedWriter::kSecond, fill));
  };
  write('a');
  bool written = false;
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress& progress) {
    if (progress.copied_bytes > 0 && !std::exchange(written, true)) write('b');
    return true;
  }) == absl::OkStatus());
  REQUIRE(written);
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  const auto reader = Use(*restored, volume.id, kB);
  CHECK(reader->Read(OrderedWriter::kFirst) == 'a');
  CHECK(reader->Read(OrderedWriter::kSecond) == 'a');
}

TEST_CASE_METHOD(PoolOnXfs, "a backup that broke off is no backup, and goes on where it was") {
  const std::vector<Volume> made = {MakeWritten("1", 'x'), MakeWritten("2", 'y'), MakeWritten("3", 'z')};
  const size_t files = CountFiles();
  std::vector<std::string> begun;
  const auto until_third = [&](const BackupProgress& progress) {
    if (begun.empty() || begun.back() != progress.image) begun.push_back(progress.image);
    return progress.done_images < 2;
  };
  REQUIRE(absl::IsCancelled(fixture.array->BackUp(backup, until_third)));
  CHECK(CountFiles() == files);
  CHECK(absl::IsFailedPrecondition(VerifyBackup(backup, Watch)));
  {
    Restored elsewhere(backup);
    const absl::Status refused = elsewhere.Open();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("broke off"));
  }
  // What a crash in the middle of a line leaves; and one that was copied is deleted meanwhile.
  std::ofstream(backup + "/backup", std::ios::app) << "file volumes/";
  const VolumeId deleted(begun.front().substr(begun.front().find('/') + 1));
  REQUIRE(cluster->volumes().DeleteVolume(deleted).ok());
  const std::string second = backup + "/" + begun[1];
  struct stat before {};
  struct stat after {};
  REQUIRE(::stat(second.c_str(), &before) == 0);
  REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
  REQUIRE(::stat(second.c_str(), &after) == 0);
  CHECK(before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);  // it was not touched
  CHECK_FALSE(std::filesystem::exists(BackedUp(deleted)));
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().ListVolumes("", 0)->items.size() == 2);
  for (const Volume& volume : made)
    if (volume.id != deleted) CHECK(Use(*restored, volume.id, kB)->Read(0).has_value());
}

TEST_CASE_METHOD(PoolOnXfs,
                 "what is deleted while a backup is made is not in it, and what is made is not, either") {
  const Volume kept = MakeWritten("kept", 'k');
  const VolumeId volume = MakeWritten("deleted", 'd').id;
  const SnapshotId snapshot = cluster->volumes().CreateSnapshot("deleted", kept.id)->id;
  const SnapshotGroupId group = cluster->groups().CreateGroup("deleted", {kept.id})->id;
  bool changed = false;
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress&) {
    if (std::exchange(changed, true)) return true;
    REQUIRE(cluster->volumes().DeleteVolume(volume).ok());
    REQUIRE(cluster->volumes().DeleteSnapshot(snapshot).ok());
    REQUIRE(cluster->groups().DeleteGroup(group).ok());
    Make("made");
    return true;
  }) == absl::OkStatus());
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  const auto volumes = restored->volumes().ListVolumes("", 0);
  REQUIRE(volumes->items.size() == 1);
  CHECK(volumes->items.front().id == kept.id);
  CHECK(restored->volumes().ListSnapshots({}, "", 0)->items.empty());
  CHECK(absl::IsNotFound(restored->groups().GetGroup(group).status()));
  CHECK(Use(*restored, kept.id, kB)->Read(0) == 'k');
  CHECK(elsewhere.array->ListOrphans()->empty());
}

TEST_CASE_METHOD(PoolOnXfs,
                 "a copy that ended while a backup was made is in it, whatever became of its source") {
  const Volume source = MakeWritten("source", 's');
  VolumeSpec spec = Spec("copy", 16);
  spec.source_snapshot = cluster->volumes().CreateSnapshot("snapshot", source.id)->id;
  const auto copy = cluster->volumes().CreateVolume(spec);
  REQUIRE(copy.status() == absl::OkStatus());
  REQUIRE(Use(*cluster, copy->id, kA)->Write(0, 'c'));
  const auto set_copying = [&](int64_t copying) {
    const auto catalogue = SqlDatabase::Open(pool + "/catalogue.db", SqlDatabase::Mode::kReadWrite);
    const auto changed =
        (*catalogue)->Change("UPDATE volumes SET copying = ?1 WHERE id = ?2", {copying, copy->id.value()});
    REQUIRE(changed.ok());
  };
  set_copying(1);
  bool ended = false;
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress&) {
    if (std::exchange(ended, true)) return true;
    set_copying(0);
    REQUIRE(cluster->volumes().DeleteSnapshot(spec.source_snapshot).ok());
    return true;
  }) == absl::OkStatus());
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().ListVolumes("", 0)->items.size() == 2);
  CHECK(Use(*restored, copy->id, kB)->Read(0) == 'c');
  CHECK(elsewhere.array->ListOrphans()->empty());
}

TEST_CASE_METHOD(PoolOnXfs,
                 "a backup that is copied over an old pool takes nothing of the old catalogue's log") {
  const Volume kept = MakeWritten("kept", 'k');
  REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
  Make("newer");
  const std::string log = backup + "/catalogue.db-wal";
  Run("cp " + pool + "/catalogue.db-wal " + log);
  REQUIRE(std::filesystem::file_size(log) > 0);
  const absl::Status verified = VerifyBackup(backup, Watch);
  CHECK(absl::IsDataLoss(verified));
  CHECK_THAT(std::string(verified.message()), Catch::Contains(log));
  Restored elsewhere(backup);
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().ListVolumes("", 0)->items.size() == 1);
  CHECK(Use(*restored, kept.id, kB)->Read(0) == 'k');
}

TEST_CASE_METHOD(PoolOnXfs, "a backup is its owner's alone, for it has the secrets of the grants") {
  Make("v");
  REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
  const auto mode_of = [](const std::string& path) {
    struct stat file {};
    REQUIRE(::stat(path.c_str(), &file) == 0);
    return file.st_mode & 0777;
  };
  CHECK(mode_of(backup) == 0700);
  CHECK(mode_of(backup + "/catalogue.db") == 0600);
}

TEST_CASE_METHOD(PoolOnXfs, "a backup that was changed or has lost a file is found out") {
  const Volume volume = MakeWritten("v", 'x');
  CHECK(absl::IsNotFound(VerifyBackup(backup, Watch)));
  REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
  const std::string file = BackedUp(volume.id);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(8 << 20).put('!');
  const absl::Status changed = VerifyBackup(backup, Watch);
  CHECK(absl::IsDataLoss(changed));
  CHECK_THAT(std::string(changed.message()), Catch::Contains(file));
  // A block of zeroes is as good as a hole: other copying programs make the one of the other.
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(8 << 20).put('\0');
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  std::filesystem::resize_file(file, 8 << 20);
  CHECK(absl::IsDataLoss(VerifyBackup(backup, Watch)));
  std::filesystem::remove(file);
  CHECK(absl::IsDataLoss(VerifyBackup(backup, Watch)));
}

TEST_CASE_METHOD(PoolOnXfs, "a backup is refused where it would harm, and nothing is begun") {
  MakeWritten("v", 'x');
  const auto refusal = [&](const std::string& folder) { return fixture.array->BackUp(folder, Watch); };
  CHECK(absl::IsFailedPrecondition(refusal(mount.path() + "/backup")));  // on the pool's disk
  CHECK(absl::IsInvalidArgument(refusal("backup")));
  CHECK(absl::IsNotFound(refusal(directory.path() + "/no/where")));
  const std::string other = directory.path() + "/other";
  Run("mkdir " + other + " && touch " + other + "/file");
  CHECK(absl::IsFailedPrecondition(refusal(other)));
  Run("rm " + other + "/file && printf 'lunkeeper backup 1\narray a2\n' > " + other + "/backup");
  const absl::Status foreign = refusal(other);
  CHECK(absl::IsFailedPrecondition(foreign));
  CHECK_THAT(std::string(foreign.message()), Catch::Contains("a2"));
  // One at a time.
  REQUIRE(fixture.array->BackUp(backup, [&](const BackupProgress&) {
    CHECK(absl::IsAborted(refusal(directory.path() + "/second")));
    return true;
  }) == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(refusal(backup)));  // it is whole
  CHECK(VerifyBackup(backup, Watch).ok());
}

TEST_CASE_METHOD(PoolOnXfs, "a volume is held for a backup only where its node's writes find room") {
  const Volume volume = Make("thick", Provisioning::kThick);
  Run("dd if=/dev/urandom conv=notrunc bs=1M count=16 2>/dev/null of=" + pool + "/volumes/" +
      volume.id.value());
  const std::string filler = mount.path() + "/filler";
  const auto room = std::filesystem::space(pool).available;
  Run(absl::StrCat("fallocate -l ", room - (20 << 20), " ", filler));
  const absl::Status refused = fixture.array->BackUp(backup, Watch);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("grow the pool"));
  Run("rm " + filler);
  CHECK(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(PoolOnXfs, "a restored thick volume that does not fit takes no space from the others") {
  VolumeSpec spec = Spec("thick", 200);
  spec.provisioning = Provisioning::kThick;
  REQUIRE(cluster->volumes().CreateVolume(spec).status() == absl::OkStatus());
  REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus());
  const TempDir other;
  const LoopMount small(other.path(), "128M", "mkfs.ext4 -q -m 0");
  Run("cp --archive --sparse=always " + backup + " " + small.path() + "/pool");
  Restored elsewhere(small.path() + "/pool");
  const auto restored = elsewhere.Accept();
  CHECK(restored->volumes().GetCapacity()->available_bytes > 64 << 20);
  CHECK(restored->volumes().CreateVolume(Spec("thin", 16)).ok());
}

TEST_CASE_METHOD(PoolOnXfs, "a folder without room for a backup is refused before anything is copied") {
  const Volume volume = Make("v");
  Run("dd if=/dev/urandom conv=notrunc bs=1M count=16 2>/dev/null of=" + pool + "/volumes/" +
      volume.id.value());
  const std::string small = directory.path() + "/small";
  Run("mkdir " + small);
  const LoopMount disk(small, "8M", "mkfs.ext4 -q");
  const std::string folder = disk.path() + "/backup";
  CHECK(absl::IsResourceExhausted(fixture.array->BackUp(folder, Watch)));
  CHECK(std::filesystem::is_empty(folder + "/volumes"));
}

TEST_CASE_METHOD(ClusterFixture, "a pool that cannot reflink is not copied while it serves") {
  Make("v");
  const std::string folder = "/dev/shm/" + std::filesystem::path(directory.path()).filename().string();
  const absl::Status refused = ArrayFixture::array->BackUp(folder, Watch);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("reflink"));
  CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("a backup's list is read as far as it was written, and no further") {
  const std::string text = "lunkeeper backup 1\narray a1\nfile volumes/v 7 ab\nfile volumes/w 8 cd\n";
  const auto some = ParseBackupManifest(text + "gone volumes/v\nfile volumes/w 9 ef\nwho");
  REQUIRE(some.ok());
  CHECK(some->array == "a1");
  REQUIRE(some->files.size() == 1);
  CHECK(some->files.at("volumes/w").size_bytes == 9);
  CHECK(some->files.at("volumes/w").digest == "ef");
  CHECK_FALSE(some->whole);
  CHECK(ParseBackupManifest(text + "whole\n")->whole);
  CHECK(ParseBackupManifest("lunkeeper ba")->array.empty());
  for (const char* line : {"lunkeeper backup 2\n", "\n"})
    CHECK(absl::IsFailedPrecondition(ParseBackupManifest(line).status()));
  for (const char* line : {"file volumes/v x y\n", "file a b\n", "other\n", "\n"})
    CHECK(absl::IsFailedPrecondition(ParseBackupManifest(text + line).status()));
}

}  // namespace lunkeeper::testing
