// What becomes of data that are only in the block device's cache when the device is detached. As in
// datapath_test.cc, all of it real, but for a target whose medium fails.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/testing/rig.h"
#include "devices/iscsi/testing/fake_target.h"

namespace lunkeeper::testing {
namespace {

// What a process leaves behind that writes without a sync: a raw block volume's cache is all there is of it.
void WriteUnsynced(const std::string& device, const std::string& text) {
  const UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  char page[4096];  // read before, so that the write itself needs no target
  REQUIRE(::pread(fd.get(), page, sizeof(page), 0) == sizeof(page));
  REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
}

std::string ReadText(const std::string& device, size_t size) {
  const UniqueFd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(size, ' ');
  REQUIRE(::pread(fd.get(), text.data(), size, 0) == static_cast<ssize_t>(size));
  return text;
}

// The grant is released after a detach, so an OK without the data would lose them without an error anywhere.
TEST_CASE("a detach while the target is away drops nothing: the device stays until all is written back") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  WriteUnsynced(device.path, "first");
  target.Kill();
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kUnavailable);
  CHECK(datapath.initiator().List()->size() == 1);
  const pid_t worker = datapath.worker();
  ::kill(worker, SIGKILL);  // nor is a worker that is being replaced a reason
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kUnavailable);
  datapath.WaitForOtherWorker(worker);
  target.Start();
  Eventually("the device is detached", [&] { return datapath.initiator().Detach(device.volume).ok(); });
  CHECK(ReadText(MustAttach(datapath, target.RequestFor(1)).path, 5) == "first");
}

TEST_CASE("a detach lets go of a device that has failed for good, and the log says what is lost") {
  AttachedLun rig(64 * kMiB, {"--replacement-timeout=2"});
  auto& [dir, target, datapath, device] = rig;
  target.Kill();
  UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
  Eventually("it has failed", [&] {
    return datapath.initiator().Find(device.volume)->value().health == DeviceHealth::kFailed;
  });
  const std::string block(4096, 'x');  // a whole block needs no read before it
  REQUIRE(::pwrite(fd.get(), block.data(), block.size(), 0) == 4096);
  CHECK(datapath.initiator().Detach(device.volume).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(datapath.log().find("detached without writing back") == std::string::npos);
  fd.Reset();
  CHECK(datapath.initiator().Detach(device.volume).ok());
  CHECK(datapath.log().find("detached without writing back") != std::string::npos);
  CHECK(datapath.log().find("lost_bytes") != std::string::npos);
  CHECK(datapath.initiator().List()->empty());
}

TEST_CASE("a detach whose write-back fails says so, and once more, since the answer may be lost") {
  TempDir dir;
  iscsi::FakeTarget target;
  target.Change([](auto& traits) {
    traits.script = [](const iscsi::FakeCommand& command) {
      constexpr uint8_t kWrite = 0x8a, kMediumError = 3;
      return command.operation == kWrite ? iscsi::Sense(kMediumError, 0x0c) : iscsi::Reaction{};
    };
  });
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, RequestFor(target));
  WriteUnsynced(device.path, "lost");
  const absl::Status lost = datapath.initiator().Detach(device.volume);
  INFO(lost);
  CHECK(lost.code() == absl::StatusCode::kDataLoss);
  CHECK(datapath.initiator().List()->size() == 1);
  CHECK(datapath.initiator().Detach(device.volume) == lost);
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

// Nobody keeps duplicates, so its end is that of the cache.
TEST_CASE("a detach that is cut off by a kill is no success") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  WriteUnsynced(device.path, "lost");
  ::kill(target.pid(), SIGSTOP);
  absl::Status cut_off;
  std::thread detach([&] { cut_off = datapath.initiator().Detach(device.volume); });
  CHECK(Eventually([&] { return HasWaitingChild(datapath.pid()); }, absl::Seconds(20)));
  datapath.Kill();
  detach.join();
  ::kill(target.pid(), SIGCONT);
  INFO(cut_off);
  CHECK(absl::IsDataLoss(cut_off));
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

TEST_CASE("a detach that a kill cuts off behind its write-back loses nothing") {
  const std::string point = GENERATE("datapath.detach.sealed", "datapath.detach.removed");
  TempDir dir;
  Target target(dir);
  target.AddLun(1, 64 * kMiB);
  Datapath datapath(dir, {}, {"env", "LUNKEEPER_FAIL_POINT=" + point});
  const Device device = MustAttach(datapath, target.RequestFor(1));
  WriteUnsynced(device.path, "first");
  Eventually("it is detached", [&] {
    const absl::Status detached = datapath.initiator().Detach(device.volume);
    CHECK_FALSE(absl::IsDataLoss(detached));
    return detached.ok();
  });
  Eventually("it dies", [&] { return datapath.Ended(); });
  Datapath next(dir);
  CHECK(ReadText(MustAttach(next, target.RequestFor(1)).path, 5) == "first");
}

}  // namespace
}  // namespace lunkeeper::testing
