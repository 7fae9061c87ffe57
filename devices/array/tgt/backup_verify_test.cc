// A backup that is checked, and one that is restored, is what was written, all of it and nothing else. Needs
// root.
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/file_extents.h"
#include "devices/array/tgt/testing/backup_fixture.h"

namespace lunkeeper::testing {
namespace {

struct BackedUpPool : PoolOnXfs {
  BackedUpPool() { REQUIRE(fixture.array->BackUp(backup, Watch) == absl::OkStatus()); }
  void RewriteManifest(const std::string& pattern, const std::string& with) const {
    std::ostringstream text;
    text << std::ifstream(backup + "/backup").rdbuf();
    const std::string changed = std::regex_replace(text.str(), std::regex(pattern), with);
    REQUIRE(changed != text.str());
    std::ofstream(backup + "/backup") << changed;
  }
  // It is refused, and says of what.
  void CheckIsFoundOut(const std::string& name) const {
    const absl::Status verified = VerifyBackup(backup, Watch);
    CHECK(absl::IsDataLoss(verified));
    CHECK_THAT(std::string(verified.message()), Catch::Contains(name));
  }

  const Volume volume = MakeWritten("v", 'x');  // in the backup, as this file:
  const std::string image = BackedUp(volume.id);
};

}  // namespace

TEST_CASE_METHOD(BackedUpPool, "a backup whose list has lost a line is found out") {
  const auto line = GENERATE("volumes/", "catalogue.db");
  RewriteManifest(absl::StrCat("file ", line, "[^\n]*\n"), "");
  CheckIsFoundOut(line);
}

TEST_CASE_METHOD(BackedUpPool, "a file in a backup that is not its own is found out") {
  const std::string other = backup + "/snapshots/other";
  std::ofstream(other) << "x";
  CheckIsFoundOut(other);
  std::filesystem::remove(other);
  CHECK(VerifyBackup(backup, Watch) == absl::OkStatus());
  // A link may lead to what is lost with the pool, and nobody copies what it leads to.
  std::filesystem::rename(image, directory.path() + "/moved");
  std::filesystem::create_symlink(directory.path() + "/moved", image);
  CheckIsFoundOut(image);
}

TEST_CASE_METHOD(BackedUpPool,
                 "a backup is verified under any path, and without the folders that are empty") {
  std::filesystem::remove(backup + "/snapshots");
  const std::string odd = directory.path() + "/a%41 b?c#d";
  std::filesystem::rename(backup, odd);
  CHECK(VerifyBackup(odd, Watch) == absl::OkStatus());
  CHECK(VerifyBackup("/" + odd + "/", Watch) == absl::OkStatus());
  CHECK(VerifyBackup(std::filesystem::relative(odd), Watch) == absl::OkStatus());
}

TEST_CASE_METHOD(BackedUpPool, "a backup on a disk that is read-only is verified") {
  Run("mount --bind " + backup + " " + backup + " && mount -o remount,bind,ro " + backup);
  const absl::Status verified = VerifyBackup(backup, Watch);
  Run("umount " + backup);
  CHECK(verified == absl::OkStatus());
}

TEST_CASE_METHOD(PoolOnXfs, "a bad sector under a backup is an error, and no endless reading") {
  const Volume volume = Make("v");
  Run("dd if=/dev/urandom conv=notrunc bs=1M count=16 2>/dev/null of=" + pool + "/volumes/" +
      volume.id.value());
  const std::string other = directory.path() + "/other";
  Run("mkdir " + other);
  const LoopMount disk(other, "512M");
  const std::string folder = disk.path() + "/backup", image = folder + "/volumes/" + volume.id.value();
  REQUIRE(fixture.array->BackUp(folder, Watch) == absl::OkStatus());
  const auto extents = ReadExtents(UniqueFd(::open(image.c_str(), O_RDONLY)).get(), image);
  REQUIRE(extents.ok());
  const FileExtent last = extents->back();
  REQUIRE(last.length > 8192);
  disk.MountAnew();
  // Without readahead, so that the good half of that block is read by itself.
  Run("blockdev --setra 0 $(findmnt -no SOURCE " + disk.path() + ")");
  // The disk ends in the middle of a block that is read as one.
  Run(absl::StrCat("truncate -s ", last.place + last.length - 8192, " ", other, "/image"));
  const absl::Status verified =
      VerifyBackup(folder, [](const BackupProgress& progress) { return progress.copied_bytes < 64 << 20; });
  CHECK(absl::IsInternal(verified));
  CHECK_THAT(std::string(verified.message()), Catch::Contains(image));
}

TEST_CASE_METHOD(BackedUpPool, "a catalogue that cannot be read is not taken for a changed one") {
  Run("rm " + backup + "/catalogue.db && mkdir " + backup + "/catalogue.db && touch " + backup +
      "/catalogue.db-wal");
  CHECK(absl::IsInternal(RemoveOldLog(backup)));
}

TEST_CASE_METHOD(BackedUpPool, "a backup that was copied in part is neither opened nor accepted") {
  SECTION("its catalogue is another one") {
    Run("cp " + pool + "/catalogue.db " + backup + "/catalogue.db && echo >>" + backup + "/catalogue.db");
    Restored elsewhere(backup);
    const absl::Status refused = elsewhere.Open();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("catalogue.db"));
  }
  SECTION("a volume is short, or missing") {
    std::filesystem::resize_file(image, 1 << 20);
    Restored elsewhere(backup);
    REQUIRE(elsewhere.Open() == absl::OkStatus());
    const uint64_t sequence = elsewhere.array->sequence();
    for (int i = 0; i < 2; ++i) {
      const absl::Status refused = elsewhere.array->AcceptRestore();
      CHECK(absl::IsFailedPrecondition(refused));
      CHECK_THAT(std::string(refused.message()), Catch::Contains(image));
      std::filesystem::remove(image);
    }
    CHECK(elsewhere.array->sequence() == sequence);
    // Who has no other copy does without it.
    RewriteManifest("$", absl::StrCat("gone volumes/", volume.id.value(), "\n"));
    CHECK(elsewhere.array->AcceptRestore() == absl::OkStatus());
  }
}

TEST_CASE_METHOD(BackedUpPool, "a backup that an agent has opened is opened again, with what it wrote") {
  {
    Restored elsewhere(backup);
    REQUIRE(elsewhere.Open() == absl::OkStatus());
    elsewhere.Close();
    REQUIRE(elsewhere.Open() == absl::OkStatus());
  }
  const absl::Status verified = VerifyBackup(backup, Watch);
  CHECK(absl::IsFailedPrecondition(verified));
  CHECK_THAT(std::string(verified.message()), Catch::Contains("opened"));
  Restored elsewhere(backup);
  CHECK(Use(*elsewhere.Accept(), volume.id, kB)->Read(0) == 'x');
}

TEST_CASE_METHOD(BackedUpPool, "a folder of backups in a pool does not make that a backup") {
  cluster.reset();
  fixture.Close();
  Run("mkdir " + pool + "/backup");
  CHECK(fixture.Open() == absl::OkStatus());
  CHECK(fixture.array->CheckServing() == absl::OkStatus());
}

}  // namespace lunkeeper::testing
