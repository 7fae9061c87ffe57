// A format that does not end, and the mark that it leaves. Needs root.
#include "devices/filesystem/unfinished_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/captured_log.h"
#include "base/unique_fd.h"
#include "devices/filesystem/testing/filesystem_fixture.h"

namespace lunkeeper {

TEST_CASE("a format that was cut short at any time is recognised and done again") {
  const FilesystemType type = GENERATE(FilesystemType::kExt4, FilesystemType::kXfs);
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", SizeFor(type));
  bool cut = false;
  for (absl::Duration time = absl::Milliseconds(1);; time += absl::Milliseconds(2)) {
    REQUIRE(time < absl::Seconds(10));
    const absl::Status status = f.filesystem->Make({device.path(), type, kVolume}, absl::Now() + time);
    if (status.ok()) break;
    cut = true;
    INFO(status << " after " << time);
    const Content content = f.ContentOf(device);
    if (content == Content::kFilesystem) break;  // finished, and the time was up on the way back
    REQUIRE(content == Content::kBlank);
  }
  CHECK(cut);
  CHECK(f.ContentOf(device) == Content::kFilesystem);
}

// The mark of an unfinished format is found by the device's end.
TEST_CASE("what a format left that found no room is not in the way when the device has grown since") {
  const FilesystemType type = GENERATE(FilesystemType::kExt4, FilesystemType::kXfs);
  FilesystemFixture f;
  testing::TempDir directory;
  MountPoint pool(directory, "pool");
  REQUIRE(Shell("mount -t tmpfs -o size=1200k none " + pool.path()));
  ScratchLoop device(directory, "pool/disk", 4 * SizeFor(type));
  const absl::Status status = f.filesystem->Make({device.path(), type, kVolume}, Soon());
  INFO(status);
  REQUIRE(absl::IsInternal(status));
  REQUIRE(Shell("mount -o remount,size=100% " + pool.path()));
  REQUIRE(Shell("blockdev --flushbufs " + device.path()));  // as by a detach
  device.Grow(5 * SizeFor(type));
  CHECK(f.ContentOf(device) == Content::kBlank);
  f.Make(device, type);
  CHECK(f.ContentOf(device) == Content::kFilesystem);
}

// Opens it exclusively once mkfs.xfs has begun to write, and as soon as that has ended.
void UseAfterTool(const ScratchLoop& device, const std::atomic<bool>& over) {
  const UniqueFd file(::open(device.file().c_str(), O_RDONLY | O_CLOEXEC));
  for (char first = 0; !over && first == 0;)
    if (::pread(file.get(), &first, 1, 0) != 1) return;
  UniqueFd user;
  while (!over && !user) user.Reset(::open(device.path().c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
  while (!over) absl::SleepFor(absl::Milliseconds(1));
}

// What the log says of a device after a format that found no room, while something else opens the device.
std::string LogOfFailedFormat() {
  FilesystemFixture f;
  testing::TempDir directory;
  MountPoint pool(directory, "pool");
  REQUIRE(Shell("mount -t tmpfs -o size=1200k none " + pool.path()));
  const ScratchLoop device(directory, "pool/disk", kXfsSize);
  const testing::CapturedLog log(directory / "log");
  std::atomic<bool> over = false;
  std::jthread user([&] { UseAfterTool(device, over); });
  const absl::Status made = f.filesystem->Make({device.path(), FilesystemType::kXfs, kVolume}, Soon());
  over = true;
  user.join();
  INFO(made);
  REQUIRE(absl::IsInternal(made));
  const std::string text = log.Text();
  return absl::StrContains(text, "device=" + device.path()) ? text : "";
}

TEST_CASE("where what a failed format left cannot be wiped, the log says so, and what follows") {
  std::string log;
  CHECK(testing::Eventually([&] {  // the other one may come too late
    log = LogOfFailedFormat();
    return !log.empty();
  }));
  CHECK_THAT(log, Catch::Contains("cannot be wiped") && Catch::Contains(absl::StrCat("volume=", kVolume)) &&
                      Catch::Contains("delete such a volume"));
}

TEST_CASE("what an unfinished format left is wiped before the next") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kXfsSize);
  const auto uuid = MarkUnfinished(device.path(), Soon());
  REQUIRE(uuid.ok());
  REQUIRE(Shell("mkfs.xfs -q -K -m uuid=" + *uuid + " " + device.path()));  // as if killed before its end
  CHECK(f.ContentOf(device) == Content::kBlank);
  f.Make(device, FilesystemType::kExt4);
  CHECK(f.ContentOf(device) == Content::kFilesystem);
  CHECK(f.filesystem->Check({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
}

// Where the mark is, both file systems have data of files. A file that repeats it is easily uploaded.
TEST_CASE("a file system that is used is not formatted again, whatever its files hold") {
  const FilesystemType type = GENERATE(FilesystemType::kExt4, FilesystemType::kXfs);
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop marked(directory, "marked", kSmall), device(directory, "disk", 2 * kXfsSize);
  MountPoint point(directory, "point");
  REQUIRE(MarkUnfinished(marked.path(), Soon()).ok());
  const std::string mark = directory / "mark", many = directory / "many";
  REQUIRE(
      Shell(absl::StrCat("dd if=", marked.path(), " of=", mark, " bs=4096 skip=3584 count=1 2>/dev/null")));
  REQUIRE(Shell(absl::StrCat("for i in $(seq 256); do cat ", mark, "; done >", many)));
  f.Make(device, type);
  REQUIRE(f.Mount(device, point.path(), type).ok());
  Shell(absl::StrCat("while cat ", many, "; do :; done >", point.path(), "/upload 2>/dev/null; sync"));
  REQUIRE(f.mounter->Unmount(point.path(), false, Soon()).ok());
  REQUIRE(ReadMark(device.path(), Soon()).value() == ReadMark(marked.path(), Soon()).value());
  CHECK(f.ContentOf(device) == Content::kFilesystem);
  CHECK(absl::IsFailedPrecondition(f.filesystem->Make({device.path(), type, kVolume}, Soon())));
}

// A format that was killed, and the next one just after it has begun.
TEST_CASE("a format that is cut short before it has wiped what the one before left is still none") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  const auto uuid = MarkUnfinished(device.path(), Soon());
  REQUIRE(uuid.ok());
  REQUIRE(Shell(absl::StrCat("mke2fs -q -E nodiscard -U ", *uuid, " ", device.path())));
  CHECK(f.ContentOf(device) == Content::kBlank);
  CHECK(MarkUnfinished(device.path(), Soon()).value() == *uuid);
}

// As the data path does, which has its devices open.
TEST_CASE("a look at a raw device that nodes share leaves nothing in its cache") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop ours(directory, "disk", kSmall), theirs(directory, "disk", kSmall);
  const UniqueFd datapath(::open(ours.path().c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(f.filesystem->PrepareRaw(ours.path(), Soon()).ok());
  WriteAt(theirs.path(), kSmall - 2 * kMiB, "written by another node");
  REQUIRE(Shell("blockdev --flushbufs " + theirs.path()));
  CHECK(Digest(ours.path()) == Digest(theirs.path()));
}

// One whose format failed, that was used raw then, and that may be used either way.
TEST_CASE("a device that somebody has had raw is never formatted again by the mark of an unfinished format") {
  FilesystemFixture f;
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kSmall);
  REQUIRE(MarkUnfinished(device.path(), Soon()).ok());
  REQUIRE(f.filesystem->PrepareRaw(device.path(), Soon()).ok());
  const UniqueFd user(::open(device.path().c_str(), O_RDWR | O_EXCL | O_CLOEXEC));
  REQUIRE(f.filesystem->PrepareRaw(device.path(), Soon()).ok());  // a repeated stage
  WriteAt(device.path(), 0, "data");
  CHECK(f.ContentOf(device) == Content::kForeign);
}

TEST_CASE("a device that cannot be written may be used raw") {
  FilesystemFixture f;
  testing::TempDir directory;
  { REQUIRE(MarkUnfinished(ScratchLoop(directory, "disk", kSmall).path(), Soon()).ok()); }
  ScratchLoop device(directory, "disk", kSmall, /*read_only=*/true);
  CHECK(f.filesystem->PrepareRaw(device.path(), Soon()) == absl::OkStatus());
}

}  // namespace lunkeeper
