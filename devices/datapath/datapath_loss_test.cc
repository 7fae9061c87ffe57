// What a detach says of a volume whose data path died, and nobody kept it. As in datapath_test.cc, all of it
// real.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/testing/rig.h"

namespace lunkeeper::testing {
namespace {

// Closed without a sync: the writer gets no error.
void WriteUnsynced(const std::string& device) {
  const UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  const std::string data(64 << 10, 'x');
  REQUIRE(::pwrite(fd.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
}

// Nobody has the device open, so nothing is left of it.
void KillWithDevice(AttachedLun& rig) {
  rig.datapath.Kill();
  Eventually("the device goes", [&] { return !IsBound(rig.device.path); });
}

std::string RecordsOf(const AttachedLun& rig) { return rig.dir / "datapath.sock.attached"; }

TEST_CASE("what a writer closed unsynced, and a dead data path took along, is told of by two detaches") {
  const bool restarted = GENERATE(false, true);
  AttachedLun rig(64 * kMiB);
  WriteUnsynced(rig.device.path);
  KillWithDevice(rig);
  if (restarted) rig.datapath.Start();
  Initiator& initiator = rig.datapath.initiator();
  CHECK(absl::IsDataLoss(initiator.Detach(rig.device.volume)));
  CHECK(absl::IsDataLoss(initiator.Detach(rig.device.volume)));
  CHECK(initiator.Detach(rig.device.volume).ok());
  CHECK(std::filesystem::is_empty(RecordsOf(rig)));
}

TEST_CASE("a data path started between two detaches goes on with the telling") {
  AttachedLun rig(64 * kMiB);
  KillWithDevice(rig);
  CHECK(absl::IsDataLoss(rig.datapath.initiator().Detach(rig.device.volume)));
  rig.datapath.Start();
  CHECK(absl::IsDataLoss(rig.datapath.initiator().Detach(rig.device.volume)));
  CHECK(rig.datapath.initiator().Detach(rig.device.volume).ok());
}

TEST_CASE("nothing is told of a volume that was detached, or not writable, when its data path died") {
  AttachedLun rig(64 * kMiB);
  rig.target.AddLun(2, 64 * kMiB);
  AttachRequest request = rig.target.RequestFor(2);
  request.read_only = true;
  const Device read_only = MustAttach(rig.datapath, request);
  WriteUnsynced(rig.device.path);
  REQUIRE(rig.datapath.initiator().Detach(rig.device.volume).ok());
  KillWithDevice(rig);
  Eventually("the other device goes", [&] { return !IsBound(read_only.path); });
  CHECK(rig.datapath.initiator().Detach(rig.device.volume).ok());
  CHECK(rig.datapath.initiator().Detach(read_only.volume).ok());
}

TEST_CASE("a volume that is attached again after a loss is detached without a word of it") {
  AttachedLun rig(64 * kMiB);
  KillWithDevice(rig);
  rig.datapath.Start();
  const Device again = MustAttach(rig.datapath, rig.target.RequestFor(1));
  CHECK(rig.datapath.log().find("attached again after its data path died") != std::string::npos);
  WriteUnsynced(again.path);
  CHECK(rig.datapath.initiator().Detach(again.volume).ok());
}

// As one that was started after the first one's folder was removed: it has another identity.
TEST_CASE("a device is seen to be a data path's by one that knows nothing of it") {
  AttachedLun rig(64 * kMiB);
  TempDir elsewhere;
  Datapath other(elsewhere);
  CHECK(other.initiator().List()->empty());
  struct stat device = {}, none = {};
  REQUIRE(::stat(rig.device.path.c_str(), &device) == 0);
  REQUIRE(::stat("/dev/null", &none) == 0);
  CHECK(other.initiator().IsOfAnyDatapath(device.st_rdev));
  CHECK_FALSE(other.initiator().IsOfAnyDatapath(none.st_rdev));
}

TEST_CASE("a machine that was started anew has nothing to tell") {
  AttachedLun rig(64 * kMiB);
  KillWithDevice(rig);
  for (const auto& record : std::filesystem::directory_iterator(RecordsOf(rig))) {
    std::ofstream(record.path()) << "another boot\n";
  }
  CHECK(rig.datapath.initiator().Detach(rig.device.volume).ok());
  CHECK(std::filesystem::is_empty(RecordsOf(rig)));
}

TEST_CASE("an attach that cannot be recorded fails, and leaves nothing") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  const std::string records = dir / "datapath.sock.attached";
  std::ofstream(records) << "in the way";
  CHECK_FALSE(datapath.initiator().Attach(target.RequestFor(1)).ok());
  CHECK(datapath.initiator().List()->empty());
  std::filesystem::remove(records);
  CHECK(MustAttach(datapath, target.RequestFor(1)).health == DeviceHealth::kHealthy);
}

}  // namespace
}  // namespace lunkeeper::testing
