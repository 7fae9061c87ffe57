// The tools, libblkid and libmount on real loop devices. Needs root.
#include <fcntl.h>
#include <sys/ioctl.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/filesystem/device_image.h"
#include "devices/filesystem/testing/filesystem_fixture.h"

namespace lunkeeper {
namespace {

TEST_CASE("a zeroed device is blank, and only that is formatted") {
  const FilesystemType type = GENERATE(FilesystemType::kExt4, FilesystemType::kXfs);
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", SizeFor(type));
  CHECK(f.ContentOf(device) == Content::kBlank);
  f.Make(device, type);
  const auto found = f.filesystem->Probe(device.path(), Soon());
  REQUIRE(found.ok());
  CHECK(found->content == Content::kFilesystem);
  CHECK(found->type == type);
  CHECK(found->uuid.size() == 36);
  CHECK(found->device_bytes == SizeFor(type));
  CHECK(found->filesystem_bytes == SizeFor(type));
  CHECK(absl::IsFailedPrecondition(f.filesystem->Make({device.path(), type, kVolume}, Soon())));
  CHECK(f.filesystem->Check({device.path(), type, kVolume}, Soon()).ok());
}

struct Sample {
  const char* name;
  uint64_t at;
  std::string bytes;
};

// A DOS partition table with one Linux partition of 1 MiB at 1 MiB.
const std::string kPartitionTable =
    std::string("\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x08\0\0", 16) + std::string(48, '\0') + "\x55\xaa";
// The label of an LVM physical volume, as lvm2 writes it in the second sector (lib/format_text/layout.h).
const std::string kLvmLabel = "LABELONE" + std::string("\1\0\0\0\0\0\0\0", 8) +
                              std::string("\0\0\0\0\x20\0\0\0", 8) +
                              "LVM2 0010123456789abcdef0123456789abcdef";

TEST_CASE("somebody's data is recognised wherever it is, and left alone") {
  const Sample sample = GENERATE(
      Sample{"a byte at the start", 0, "x"}, Sample{"a byte in the first MiB", kMiB - 1, "x"},
      Sample{"a byte in the last MiB", kSmall - kMiB, "x"}, Sample{"a byte at the end", kSmall - 1, "x"},
      Sample{"a partition table", 446, kPartitionTable}, Sample{"an LVM volume", 512, kLvmLabel},
      Sample{"a VMFS beyond the first MiB", 2 * kMiB, std::string("\x5e\xf1\xab\x2f", 4)});
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  INFO(sample.name);
  WriteAt(device.path(), sample.at, sample.bytes);
  const std::string before = Digest(device.path());
  CHECK(f.ContentOf(device) == Content::kForeign);
  CHECK(absl::IsFailedPrecondition(
      f.filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, Soon())));
  CHECK(Digest(device.path()) == before);
}

TEST_CASE("what other tools made is named") {
  const auto [command, name] =
      GENERATE(table<const char*, const char*>({{"mkswap ", "swap"}, {"mke2fs -q -t ext2 ", "ext2"}}));
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  REQUIRE(Shell(command + device.path()));
  const auto found = f.filesystem->Probe(device.path(), Soon());
  REQUIRE(found.ok());
  CHECK(found->content == Content::kForeign);
  CHECK(found->description == name);
}

TEST_CASE("a file system with a damaged superblock is somebody's data") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  f.Make(device, FilesystemType::kExt4);
  WriteAt(device.path(), 1024 + 4, "xxxx");  // the number of blocks
  const auto found = f.filesystem->Probe(device.path(), Soon());
  REQUIRE(found.ok());
  CHECK(found->content == Content::kForeign);
  CHECK(found->description.find("ext4") == 0);
}

TEST_CASE("a device that cannot be read is an error, and never blank") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  REQUIRE(::truncate(device.file().c_str(), 0) == 0);
  CHECK(absl::IsUnavailable(f.filesystem->Probe(device.path(), Soon()).status()));
  CHECK_FALSE(f.filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
  CHECK(absl::IsNotFound(f.filesystem->Probe("/dev/no-such-device", Soon()).status()));
}

TEST_CASE("a file system too small for its tool fails with the tool's words") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", 16 * kMiB);
  const absl::Status status = f.filesystem->Make({device.path(), FilesystemType::kXfs, kVolume}, Soon());
  CHECK(absl::IsInternal(status));
  CHECK(std::string(status.message()).find("mkfs.xfs") != std::string::npos);
  CHECK(f.ContentOf(device) == Content::kBlank);
}

TEST_CASE("a damaged ext4 is repaired if it needs no decision, and refused if it does") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  f.Make(device, FilesystemType::kExt4);
  REQUIRE(Shell("debugfs -w -R 'ssv free_blocks_count 7' " + device.path()));
  REQUIRE(Shell("debugfs -w -R 'ssv state 2' " + device.path()));
  CHECK(f.filesystem->Check({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
  CHECK(Shell("e2fsck -f -n " + device.path()));
  REQUIRE(Shell("debugfs -w -R 'clri <2>' " + device.path()));
  REQUIRE(Shell("debugfs -w -R 'ssv state 2' " + device.path()));
  const absl::Status status = f.filesystem->Check({device.path(), FilesystemType::kExt4, kVolume}, Soon());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(std::string(status.message()).find("e2fsck") != std::string::npos);
}

// As a container has whose hostPath came without mountPropagation: it knows of no later unmount.
class OtherNamespace {
 public:
  // Of what is mounted now. It ends with this.
  explicit OtherNamespace(const testing::TempDir& directory) : pid_(directory.path() + "/pid") {
    REQUIRE(Shell("unshare --mount --propagation private sh -c 'echo $$ >" + pid_ + "; exec sleep 60' & " +
                  "while [ ! -s " + pid_ + " ]; do sleep 0.05; done"));
  }
  ~OtherNamespace() { Shell("kill $(cat " + pid_ + ")"); }

 private:
  const std::string pid_;
};

TEST_CASE("an ext4 that another mount namespace still has mounted is left alone, and can be mounted again") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  MountPoint point(directory, "point");
  f.Make(device, FilesystemType::kExt4);
  REQUIRE(f.Mount(device, point.path(), FilesystemType::kExt4).ok());
  const OtherNamespace other(directory);
  REQUIRE(f.mounter->Unmount(point.path(), false, Soon()).ok());
  CHECK(f.filesystem->Check({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
  device.Grow(2 * kSmall);
  CHECK(f.filesystem->GrowUnmounted({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
  CHECK(f.Mount(device, point.path(), FilesystemType::kExt4).ok());
  CHECK(f.filesystem->Probe(device.path(), Soon())->filesystem_bytes == kSmall);
}

TEST_CASE("a grown device's ext4 grows unmounted, and keeps its files") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  MountPoint mount(directory, "mnt");
  f.Make(device, FilesystemType::kExt4);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kExt4).ok());
  std::ofstream(mount.path() + "/file") << "kept";
  REQUIRE(f.mounter->Unmount(mount.path(), false, Soon()).ok());
  device.Grow(4 * kSmall);
  const absl::Status status =
      f.filesystem->GrowUnmounted({device.path(), FilesystemType::kExt4, kVolume}, Soon());
  INFO(status);
  REQUIRE(status.ok());
  CHECK(f.filesystem->Probe(device.path(), Soon())->filesystem_bytes == 4 * kSmall);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kExt4).ok());
  CHECK(ReadFile(mount.path() + "/file") == "kept");
  CHECK(f.filesystem->UsageOf(mount.path(), Soon())->total_bytes > 3 * kSmall);
}

TEST_CASE("a grown device's XFS grows mounted, and again without harm") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kXfsSize);
  MountPoint mount(directory, "mnt");
  f.Make(device, FilesystemType::kXfs);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kXfs).ok());
  device.Grow(2 * kXfsSize);
  for (int repetition = 0; repetition < 2; ++repetition) {
    const absl::Status status =
        f.filesystem->GrowMounted(device.path(), mount.path(), FilesystemType::kXfs, Soon());
    INFO(status);
    REQUIRE(status.ok());
  }
  CHECK(f.filesystem->UsageOf(mount.path(), Soon())->total_bytes > kXfsSize + kXfsSize / 2);
}

TEST_CASE("a mounted ext4 grows, or the message says how it will") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  MountPoint mount(directory, "mnt");
  f.Make(device, FilesystemType::kExt4);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kExt4).ok());
  CHECK(f.filesystem->GrowMounted(device.path(), mount.path(), FilesystemType::kExt4, Soon()).ok());
  device.Grow(2 * kSmall);
  const absl::Status status =
      f.filesystem->GrowMounted(device.path(), mount.path(), FilesystemType::kExt4, Soon());
  INFO(status);
  if (!status.ok()) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(std::string(status.message()).find("stage it again") != std::string::npos);
  }
}

TEST_CASE("the usage of a file system counts bytes and inodes") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  MountPoint mount(directory, "mnt");
  f.Make(device, FilesystemType::kExt4);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kExt4).ok());
  const Usage before = f.filesystem->UsageOf(mount.path(), Soon()).value();
  std::ofstream(mount.path() + "/file") << std::string(2 * kMiB, 'x') << std::flush;
  REQUIRE(Shell("sync -f " + mount.path()));
  const Usage after = f.filesystem->UsageOf(mount.path(), Soon()).value();
  CHECK(after.used_bytes == before.used_bytes + 2 * kMiB);
  CHECK(after.available_bytes == before.available_bytes - 2 * kMiB);
  CHECK(after.used_inodes == before.used_inodes + 1);
  CHECK(after.total_inodes == after.used_inodes + after.free_inodes);
}

// As XFS does by itself when it cannot write its log.
void ShutDownXfs(const std::string& mount_point) {
  constexpr unsigned long kGoingDown = _IOR('X', 125, uint32_t);  // XFS_IOC_GOINGDOWN, xfs/xfs_fs.h
  uint32_t without_a_flush = 2;
  const UniqueFd root(::open(mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(root);
  REQUIRE(::ioctl(root.get(), kGoingDown, &without_a_flush) == 0);
}

TEST_CASE("an XFS that has shut itself down has no statistics, though the kernel would still count") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kXfsSize);
  MountPoint mount(directory, "mnt");
  f.Make(device, FilesystemType::kXfs);
  REQUIRE(f.Mount(device, mount.path(), FilesystemType::kXfs).ok());
  REQUIRE(f.filesystem->UsageOf(mount.path(), Soon()).ok());
  ShutDownXfs(mount.path());
  const absl::Status status = f.filesystem->UsageOf(mount.path(), Soon()).status();
  CHECK_THAT(std::string(status.message()), Catch::Contains(mount.path()) && Catch::Contains("nput/output"));
  CHECK(absl::IsInternal(status));  // by which node/closed_volumes.cc knows it
}

TEST_CASE("statistics of a dead mount end at their deadline, and do not heap up") {
  FilesystemFixture f;
  testing::TempDir directory;
  DeadMount dead(directory, "mnt");
  const absl::Time start = absl::Now();
  const auto usage = f.filesystem->UsageOf(dead.path(), start + absl::Milliseconds(200));
  CHECK(absl::IsDeadlineExceeded(usage.status()));
  const auto again = f.filesystem->UsageOf(dead.path(), start + absl::Seconds(20));
  CHECK(absl::IsDeadlineExceeded(again.status()));
  CHECK(absl::Now() - start < absl::Seconds(5));
  CHECK(f.mounter->Mounts().ok());
}

}  // namespace
}  // namespace lunkeeper
