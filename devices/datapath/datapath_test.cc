// The data path as its users see it: real processes, real FUSE and loop devices, a real target. Needs root.

#include "devices/datapath/datapath.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"

namespace lunkeeper::testing {
namespace {

TEST_CASE("a LUN becomes a block device that a file system can be made on") {
  AttachedLun rig(256 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  CHECK(device.size_bytes == 256 * kMiB);
  CHECK(device.health == DeviceHealth::kHealthy);
  const std::string text(3 * kMiB + 17, 'x');
  {
    Mounted mounted(device.path, dir / "mnt");
    std::ofstream(mounted.path() + "/file") << text;
    mounted.Unmount();
  }
  REQUIRE(datapath.initiator().Detach(device.volume).ok());
  CHECK_FALSE(datapath.initiator().Find(device.volume)->has_value());
  CHECK(datapath.initiator().Detach(device.volume).ok());

  const Device again = MustAttach(datapath, target.RequestFor(1));
  Mounted mounted(again.path, dir / "mnt", "ext4", false);
  std::ifstream file(mounted.path() + "/file");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  CHECK(datapath.initiator().Find(again.volume)->value().counters.reads > 0);
}

TEST_CASE("a volume is attached once, however often it is asked for") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  target.AddLun(2, 64 * kMiB);
  CHECK(MustAttach(datapath, target.RequestFor(1)).path == device.path);
  CHECK(datapath.initiator().List()->size() == 1);

  AttachRequest elsewhere = target.RequestFor(2);
  elsewhere.volume = device.volume;
  CHECK(datapath.initiator().Attach(elsewhere).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a LUN that is not the volume is refused, and nothing is left") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  AttachRequest request = target.RequestFor(1);

  request.serial = "another";
  CHECK(datapath.initiator().Attach(request).status().code() == absl::StatusCode::kFailedPrecondition);
  request = target.RequestFor(1);
  request.size_bytes = 65 * kMiB;
  CHECK(datapath.initiator().Attach(request).status().code() == absl::StatusCode::kFailedPrecondition);
  request = target.RequestFor(1);
  request.connection.chap.secret = "not-the-secret!!";
  const absl::Status refused = datapath.initiator().Attach(request).status();
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK(refused.message().find("not-the-secret") == std::string::npos);
  CHECK(datapath.initiator().List()->empty());
  MustAttach(datapath, target.RequestFor(1));
}

TEST_CASE("nobody there is told from a target that does not answer") {
  TempDir dir;
  const auto nobody = MakeUserInitiator(dir / "none", absl::Seconds(1));
  CHECK(nobody->List().status().code() == absl::StatusCode::kUnavailable);

  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  target.Kill();
  const auto hasty = MakeUserInitiator(datapath.socket(), absl::Milliseconds(500));
  CHECK(hasty->Attach(target.RequestFor(1)).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(datapath.initiator().List()->empty());
}

TEST_CASE("a mounted or open device is not detached") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  {
    Mounted mounted(device.path, dir / "mnt");
    CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
    std::ofstream(mounted.path() + "/still") << "works";
    mounted.Unmount();
  }
  UniqueFd open(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  // Not written back by closing it: the data path must see to that.
  REQUIRE(::pwrite(open.get(), "buffered", 8, 0) == 8);
  open.Reset();
  REQUIRE(datapath.initiator().Detach(device.volume).ok());

  const Device again = MustAttach(datapath, target.RequestFor(1));
  char text[9] = {};
  open.Reset(::open(again.path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::pread(open.get(), text, 8, 0) == 8);
  CHECK(std::string(text) == "buffered");
}

TEST_CASE("callers beyond the number that are served at a time are asked to repeat their calls") {
  TempDir dir;
  Datapath datapath(dir);
  std::vector<UniqueFd> callers;
  for (int i = 0; i < 256; ++i) callers.push_back(*ConnectTo(datapath.socket()));  // they ask for nothing yet
  const absl::Status refused = datapath.initiator().List().status();
  INFO(refused);
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(refused.message()).find("repeat this later") != std::string::npos);
  callers.clear();
  Eventually("it answers again", [&] { return datapath.initiator().List().ok(); });
}

TEST_CASE("a data path whose log nobody reads any more serves on") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, {}, {"bash", "-c", "exec \"$@\" 2> >(true)", "bash"});
  for (int i = 0; i < 2; ++i) {
    const Device device = MustAttach(datapath, target.RequestFor(1));
    CHECK(datapath.initiator().Detach(device.volume).ok());
  }
  CHECK_FALSE(datapath.Ended());
}

TEST_CASE("a read-only device takes no writes") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  AttachRequest request = target.RequestFor(1);
  request.read_only = true;
  const Device device = MustAttach(datapath, request);
  CHECK(device.read_only);
  const UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK((!fd || ::pwrite(fd.get(), "x", 1, 0) < 0));
}

TEST_CASE("a device grows under a mounted file system") {
  AttachedLun rig(400 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  Mounted mounted(device.path, dir / "mnt", "xfs");
  target.Grow(1, 800 * kMiB);

  const auto grown = datapath.initiator().Resize(device.volume);
  REQUIRE(grown.ok());
  CHECK(grown->size_bytes == 800 * kMiB);
  MustRun({"xfs_growfs", mounted.path()});
  CHECK(std::filesystem::space(mounted.path()).capacity > 600 * kMiB);
  CHECK(datapath.initiator().Resize(VolumeId("none")).status().code() == absl::StatusCode::kNotFound);
}

// Read past the page cache, which would keep what it read.
bool EndIsReadable(const Device& device) {
  const UniqueFd fd(::open(device.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  alignas(4096) char block[4096];
  return ::pread(fd.get(), block, sizeof block, static_cast<off_t>(device.size_bytes - sizeof block)) ==
         ssize_t{sizeof block};
}

TEST_CASE("a device that grew is readable to its end at once, also while it is written to") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  FileChecker writer(device.path, 32 * kMiB, 8);
  for (uint64_t size = 68 * kMiB; size <= 144 * kMiB; size += 4 * kMiB) {
    target.Grow(1, size);
    const auto grown = datapath.initiator().Resize(device.volume);
    REQUIRE(grown.ok());
    CHECK(grown->size_bytes == size);
    CHECK(EndIsReadable(*grown));
  }
  writer.Stop();  // tgtd fails what meets a growth
}

TEST_CASE("holes are zeroes, and large and small transfers arrive whole") {
  AttachedLun rig(16 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  MustRun({"dd", "if=/dev/urandom", "of=" + dir / "data", "bs=1M", "count=16", "status=none"});
  for (const std::string size : {"4k", "64k", "68k", "128k", "1M", "4M"}) {
    INFO(size);
    MustRun({"dd", "if=" + dir / "data", "of=" + device.path, "bs=" + size, "oflag=direct", "status=none"});
    MustRun({"cmp", dir / "data", device.path});
    MustRun({"dd", "if=" + device.path, "of=" + dir / "read", "bs=" + size, "iflag=direct", "status=none"});
    MustRun({"cmp", dir / "data", dir / "read"});
  }
  for (const std::string how : {"--zeroout", "--force"}) {  // --force: a plain discard
    INFO(how);
    MustRun({"dd", "if=" + dir / "data", "of=" + device.path, "bs=1M", "oflag=direct", "status=none"});
    MustRun({"blkdiscard", how, "--offset", "1048576", "--length", "2097152", device.path});
    MustRun({"cmp", "--bytes=2097152", "--ignore-initial=1048576:0", device.path, "/dev/zero"});
    MustRun({"cmp", "--bytes=1048576", dir / "data", device.path});
    MustRun({"cmp", "--ignore-initial=3145728", dir / "data", device.path});
  }
}

}  // namespace
}  // namespace lunkeeper::testing
