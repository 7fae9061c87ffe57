// The data path as its users see it: real processes, real FUSE and loop devices, a real target. Needs root.

#include "devices/initiator/user/datapath.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "devices/initiator/user/testing/rig.h"
#include "devices/initiator/user/user_initiator.h"
#include "plugin/base/unique_fd.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Device MustAttach(Datapath& datapath, const AttachRequest& request) {
  auto device = datapath.initiator().Attach(request);
  INFO(device.status() << "\n" << datapath.log());
  REQUIRE(device.ok());
  return *device;
}

TEST_CASE("a LUN becomes a block device that a file system can be made on") {
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 256 * kMiB);
  Datapath datapath(dir);

  const Device device = MustAttach(datapath, target.RequestFor(1));
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

}  // namespace
}  // namespace lunkeeper::testing
