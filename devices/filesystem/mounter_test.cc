// Mounts of real loop devices. Needs root.
#include "devices/filesystem/mounter.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/units.h"
#include "devices/filesystem/testing/filesystem_fixture.h"
#include "devices/filesystem/testing/scratch_devices.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kSize = 320 * kMiB;  // mkfs.xfs wants 300

struct MountFixture {
  explicit MountFixture(FilesystemType of_type = FilesystemType::kExt4) : type(of_type) {
    REQUIRE(filesystem->Make({device.path(), type, kVolume}, Soon()).ok());
  }

  absl::Status MountAt(const std::string& at, const ScratchLoop& from, bool read_only = false,
                       std::vector<std::string> options = {}) {
    return mounter->MountDevice({from.path(), at, type, std::move(options), read_only}, Soon());
  }
  std::vector<Mount> MountsOf(const ScratchLoop& of) {
    std::vector<Mount> mounts = mounter->Mounts().value();
    const dev_t number = mounter->NumberOf(of.path()).value();
    std::erase_if(mounts, [number](const Mount& mount) { return mount.device != number; });
    return mounts;
  }

  const FilesystemType type;
  testing::TempDir records;
  std::unique_ptr<Filesystem> filesystem = MakeToolFilesystem(records.path());
  std::unique_ptr<Mounter> mounter = MakeLinuxMounter();
  testing::TempDir directory;
  ScratchLoop device{directory, "disk", kSize};
  MountPoint staging{directory, "staging"};
  MountPoint target{directory, "target"};
};

TEST_CASE("a mounted and bound file system is in the table, and gone after its unmount") {
  MountFixture f;
  REQUIRE(f.MountAt(f.staging.path(), f.device, false, {"noatime", "commit=30"}).ok());
  REQUIRE(f.mounter->Bind(f.staging.path(), f.target.path(), false, Soon()).ok());
  std::vector<Mount> mounts = f.MountsOf(f.device);
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].target == f.staging.path());
  CHECK(mounts[1].target == f.target.path());
  CHECK(mounts[0].type == "ext4");
  CHECK_FALSE(mounts[0].read_only);
  CHECK_FALSE(mounts[0].is_node);
  CHECK(Shell("findmnt -no OPTIONS " + f.staging.path() + " | grep noatime | grep -q commit=30"));
  CHECK(Shell("findmnt -no OPTIONS " + f.target.path() + " | grep nosuid | grep -q nodev"));
  std::ofstream(f.target.path() + "/file") << "seen";
  CHECK(ReadFile(f.staging.path() + "/file") == "seen");
  for (int repetition = 0; repetition < 2; ++repetition) {
    CHECK(f.mounter->Unmount(f.target.path(), false, Soon()).ok());
    CHECK(f.mounter->Unmount(f.staging.path(), false, Soon()).ok());
  }
  CHECK(f.MountsOf(f.device).empty());
}

// An entry of a folder leads to an inode that was wiped. (Never with a superblock that says "panic": the
// kernel is this machine's own. e2e/guest does that.)
TEST_CASE("an ext4 that is damaged becomes read-only, whatever its superblock says") {
  MountFixture f;
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  std::ofstream(f.staging.path() + "/file") << "damaged";
  REQUIRE(f.mounter->Unmount(f.staging.path(), false, Soon()).ok());
  REQUIRE(Shell("tune2fs -e continue " + f.device.path()));
  REQUIRE(Shell("debugfs -w -R 'clri /file' " + f.device.path()));
  const bool continues = GENERATE(false, true);
  REQUIRE(f.MountAt(f.staging.path(), f.device, false,
                    continues ? std::vector<std::string>{"errors=continue"} : std::vector<std::string>{})
              .ok());
  CHECK_FALSE(Shell("cat " + f.staging.path() + "/file"));
  CHECK(Shell("touch " + f.staging.path() + "/new") == continues);
  const Mount mount = f.MountsOf(f.device).front();
  CHECK_FALSE(mount.read_only);
  CHECK(mount.file_system_read_only != continues);
}

TEST_CASE("a class may say that a volume's programs and devices work") {
  MountFixture f(GENERATE(FilesystemType::kExt4, FilesystemType::kXfs));
  REQUIRE(f.MountAt(f.staging.path(), f.device, false, {"suid,dev"}).ok());
  CHECK_FALSE(Shell("findmnt -no OPTIONS " + f.staging.path() + " | grep -q -e nosuid -e nodev"));
}

TEST_CASE("a read-only bind of a writable mount cannot be written to") {
  MountFixture f;
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  REQUIRE(f.mounter->Bind(f.staging.path(), f.target.path(), true, Soon()).ok());
  CHECK(f.MountsOf(f.device).back().read_only);
  CHECK_FALSE(f.MountsOf(f.device).front().read_only);
  std::ofstream file(f.target.path() + "/file");
  CHECK_FALSE(file.is_open());
}

TEST_CASE("a device node is bound over a file and found again by its number") {
  MountFixture f;
  const std::string node = f.directory.path() + "/node";
  std::ofstream(node).close();
  REQUIRE(f.mounter->Bind(f.device.path(), node, false, Soon()).ok());
  const std::vector<Mount> mounts = f.MountsOf(f.device);
  REQUIRE(mounts.size() == 1);
  CHECK(mounts[0].is_node);
  CHECK(mounts[0].target == node);
  CHECK(f.filesystem->Probe(node, Soon())->content == Content::kFilesystem);
  CHECK(f.mounter->Unmount(node, false, Soon()).ok());
  CHECK(f.MountsOf(f.device).empty());
}

TEST_CASE("a symlink is not mounted on, nor unmounted through") {
  MountFixture f;
  const std::string link = f.directory.path() + "/link";
  std::filesystem::create_directory_symlink(f.target.path(), link);
  CHECK(absl::IsInvalidArgument(f.MountAt(link, f.device)));
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  CHECK(absl::IsInvalidArgument(f.mounter->Bind(f.staging.path(), link, false, Soon())));
  REQUIRE(f.mounter->Bind(f.staging.path(), f.target.path(), false, Soon()).ok());
  CHECK(f.mounter->Unmount(link, false, Soon()).ok());
  CHECK(f.MountsOf(f.device).size() == 2);
}

TEST_CASE("a busy mount is refused, unless it may be taken out of the tree lazily") {
  MountFixture f;
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  {
    std::ofstream open(f.staging.path() + "/file");
    const absl::Status status = f.mounter->Unmount(f.staging.path(), false, Soon());
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(f.mounter->Unmount(f.staging.path(), true, Soon()).ok());
    CHECK(f.MountsOf(f.device).empty());
  }
}

TEST_CASE("a file system that shut down says that it could not write, and one that is well does not") {
  MountFixture f(GENERATE(FilesystemType::kExt4, FilesystemType::kXfs));
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  std::ofstream(f.staging.path() + "/file") << "written";
  CHECK(f.mounter->WriteBack(f.staging.path(), Soon()).ok());
  std::ofstream(f.staging.path() + "/file") << "lost";
  REQUIRE(Shell("xfs_io -x -c shutdown " + f.staging.path()));
  const absl::Status written = f.mounter->WriteBack(f.staging.path(), Soon());
  INFO(written);
  CHECK(absl::IsDataLoss(written));
  CHECK(f.mounter->Unmount(f.staging.path(), false, Soon()).ok());
}

TEST_CASE("the write-back of a dead mount ends at its deadline") {
  testing::TempDir directory;
  DeadMount dead(directory, "dead");
  CHECK(absl::IsDeadlineExceeded(
      MakeLinuxMounter()->WriteBack(dead.path(), absl::Now() + absl::Milliseconds(300))));
}

TEST_CASE("an XFS clone is mounted beside its source, though they have one UUID") {
  MountFixture f(FilesystemType::kXfs);
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  std::ofstream(f.staging.path() + "/file") << "cloned";
  REQUIRE(Shell("sync -f " + f.staging.path()));
  REQUIRE(Shell("cp --sparse=always " + f.device.file() + " " + f.directory.path() + "/clone"));
  ScratchLoop clone(f.directory, "clone", kSize);
  CHECK(f.filesystem->Probe(clone.path(), Soon())->uuid ==
        f.filesystem->Probe(f.device.path(), Soon())->uuid);
  const absl::Status status = f.MountAt(f.target.path(), clone);
  INFO(status);
  REQUIRE(status.ok());
  CHECK(ReadFile(f.target.path() + "/file") == "cloned");
}

TEST_CASE("a snapshot of a file system in use is mounted from a read-only device") {
  MountFixture f(GENERATE(FilesystemType::kExt4, FilesystemType::kXfs));
  REQUIRE(f.MountAt(f.staging.path(), f.device).ok());
  std::ofstream(f.staging.path() + "/file") << "in the snapshot";
  REQUIRE(Shell("sync -f " + f.staging.path()));
  REQUIRE(Shell("cp --sparse=always " + f.device.file() + " " + f.directory.path() + "/snapshot"));
  ScratchLoop snapshot(f.directory, "snapshot", kSize, /*read_only=*/true);
  const absl::Status status = f.MountAt(f.target.path(), snapshot, /*read_only=*/true);
  INFO(status);
  REQUIRE(status.ok());
  CHECK(f.MountsOf(snapshot).front().read_only);
  CHECK(Shell("ls " + f.target.path()));
}

TEST_CASE("what is not a block device has no number, and a blank device is not mounted") {
  MountFixture f;
  CHECK(absl::IsNotFound(f.mounter->NumberOf(f.device.file()).status()));
  CHECK(absl::IsNotFound(f.mounter->NumberOf("/dev/no-such-device").status()));
  ScratchLoop blank(f.directory, "blank", 64 * kMiB);
  CHECK_FALSE(f.MountAt(f.staging.path(), blank).ok());
  CHECK(f.MountsOf(blank).empty());
  CHECK(absl::IsNotFound(f.MountAt(f.directory.path() + "/absent", f.device)));
  const absl::Status unknown = f.MountAt(f.staging.path(), f.device, false, {"noatime", "wsync"});
  CHECK(absl::IsInvalidArgument(unknown));
  CHECK_THAT(std::string(unknown.message()),
             Catch::Contains("with mount flags (2): ") && !Catch::Contains("wsync"));
}

}  // namespace
}  // namespace lunkeeper
