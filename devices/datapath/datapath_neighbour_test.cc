// Two data paths on one machine, as two installations of Lunkeeper: the trouble of one is not the other's.

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/testing/rig.h"

namespace lunkeeper::testing {
namespace {

// A device whose lock in the kernel is held: a change of its settings waits for a write, and the write for a
// target that is away. Every question to the device waits for that lock.
class HangingDevice {
 public:
  HangingDevice(Datapath& datapath, Target& target, const std::string& path)
      : datapath_(datapath), fd_(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)) {
    REQUIRE(::ioctl(fd_.get(), LOOP_GET_STATUS64, &info_) == 0);
    target.Kill();
    writer_ = std::thread([this] {
      void* block = std::aligned_alloc(4096, 4096);
      [[maybe_unused]] const ssize_t written = ::pwrite(fd_.get(), block, 4096, 0);
      std::free(block);
    });
    const std::string inflight = absl::StrCat("/sys/block/", path.substr(5), "/inflight");
    Eventually("the write waits", [&] {
      int reads = 0, writes = 0;
      std::ifstream(inflight) >> reads >> writes;
      return writes > 0;
    });
    changer_ = std::thread([this] {
      changer_id_ = ::gettid();
      ::ioctl(fd_.get(), LOOP_SET_STATUS64, &info_);
    });
    Eventually("the change of settings waits", [&] {
      std::string word;
      std::ifstream stat(absl::StrCat("/proc/self/task/", changer_id_.load(), "/stat"));
      return static_cast<bool>(stat >> word >> word >> word) && word == "D";
    });
  }
  ~HangingDevice() {
    datapath_.Kill();
    writer_.join();
    changer_.join();
  }

 private:
  Datapath& datapath_;
  UniqueFd fd_;
  loop_info64 info_{};
  std::atomic<pid_t> changer_id_{0};
  std::thread writer_, changer_;
};

TEST_CASE("a data path starts beside another one whose device hangs in the kernel") {
  TempDir dir;
  TempDir beside;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir);
  const HangingDevice hanging(datapath, target, MustAttach(datapath, target.RequestFor(1)).path);
  Datapath neighbour(beside);
  CHECK(neighbour.initiator().List()->empty());
}

}  // namespace
}  // namespace lunkeeper::testing
