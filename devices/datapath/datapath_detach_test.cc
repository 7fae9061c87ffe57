// What becomes of data that are only in the block device's cache when the device is detached. As in
// datapath_test.cc, all of it real, but for a target whose medium fails.

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"
#include "devices/iscsi/testing/fake_target.h"

namespace lunkeeper::testing {
namespace {

constexpr uint8_t kRead = 0x88, kWrite = 0x8a, kSynchronizeCache = 0x91, kMediumError = 3;

// What a process leaves behind that writes without a sync: a raw block volume's cache is all there is of it.
void WriteUnsynced(const std::string& device, const std::string& text) {
  const UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  char page[4096];  // read before, so that the write itself needs no target
  REQUIRE(::pread(fd.get(), page, sizeof(page), 0) == sizeof(page));
  REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
}

void FailWrites(iscsi::FakeTarget& target) {
  target.Change([](auto& traits) {
    traits.script = [](const iscsi::FakeCommand& command) {
      return command.operation == kWrite ? iscsi::Sense(kMediumError, 0x0c) : iscsi::Reaction{};
    };
  });
}

std::string ReadText(const std::string& device, size_t size) {
  const UniqueFd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(size, ' ');
  REQUIRE(::pread(fd.get(), text.data(), size, 0) == static_cast<ssize_t>(size));
  return text;
}

// Detaches a device of which the cache holds what the target's medium does not take. With what is answered.
std::pair<VolumeId, absl::Status> LoseWrite(Datapath& datapath, iscsi::FakeTarget& target) {
  FailWrites(target);
  const Device device = MustAttach(datapath, RequestFor(target));
  WriteUnsynced(device.path, "lost");
  const absl::Status lost = datapath.initiator().Detach(device.volume);
  INFO(lost);
  CHECK(absl::IsDataLoss(lost));
  return {device.volume, lost};
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
  Datapath datapath(dir);
  const auto [volume, lost] = LoseWrite(datapath, target);
  CHECK(datapath.initiator().List()->size() == 1);
  CHECK(datapath.initiator().Detach(volume) == lost);
  CHECK(datapath.initiator().Detach(volume).ok());
}

TEST_CASE("what a detach has to say once more, a successor says") {
  TempDir dir;
  iscsi::FakeTarget target;
  Datapath datapath(dir);
  const auto [volume, lost] = LoseWrite(datapath, target);
  Datapath successor(dir, {"--take-over"});
  REQUIRE_FALSE(successor.Ended());
  CHECK(successor.initiator().Detach(volume) == lost);
  CHECK(successor.initiator().Detach(volume).ok());
}

TEST_CASE("what a detach has to say once more is said after a kill, and not again") {
  TempDir dir;
  const auto store = StartDuplicateStore(dir / "datapath.sock");
  Eventually("the store listens", [&] { return ConnectToDuplicateStore(dir / "datapath.sock").ok(); });
  iscsi::FakeTarget target;
  Datapath datapath(dir);
  const auto [volume, lost] = LoseWrite(datapath, target);
  datapath.Kill();
  datapath.Start();
  CHECK(datapath.initiator().Detach(volume) == lost);
  datapath.Kill();
  datapath.Start();
  CHECK(datapath.initiator().Detach(volume).ok());
}

TEST_CASE("a detach that was given up while the target did not answer the logout can be repeated") {
  const bool is_over = GENERATE(false, true);  // the wait for the logout, when it is repeated
  TempDir dir;
  iscsi::FakeTarget target;
  target.Change([](auto& traits) { traits.logout_silent = true; });  // which takes a second
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, RequestFor(target));
  const pid_t worker = datapath.worker();
  const auto impatient = MakeUserInitiator(datapath.socket(), absl::Milliseconds(700));
  CHECK(absl::IsDeadlineExceeded(impatient->Detach(device.volume)));
  if (is_over) absl::SleepFor(absl::Seconds(2));
  const absl::Time repeated = absl::Now();
  CHECK(datapath.initiator().Detach(device.volume).ok());
  CHECK(absl::Now() - repeated < absl::Seconds(5));
  CHECK(datapath.worker() == worker);
  MustAttach(datapath, RequestFor(target));
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
  CHECK(absl::IsDataLoss(datapath.initiator().Detach(device.volume)));  // the first answer may be lost
  CHECK(datapath.initiator().Detach(device.volume).ok());
}

// Of a process's descriptor of this file.
UniqueFd CopyOf(pid_t process, const std::string& path) {
  UniqueFd copy;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/fd"))) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry, ignored) != path) continue;
    const UniqueFd pid(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    copy.Reset(
        static_cast<int>(::syscall(SYS_pidfd_getfd, pid.get(), std::stoi(entry.path().filename()), 0)));
  }
  REQUIRE(copy);
  return copy;
}

// As on a machine that is so busy that it takes seconds to end a process.
TEST_CASE("a detach that is cut off by a kill is no success however long the dead one has its lock") {
  AttachedLun rig(64 * kMiB);
  auto& [dir, target, datapath, device] = rig;
  WriteUnsynced(device.path, "lost");
  ::kill(target.pid(), SIGSTOP);
  absl::Status cut_off;
  absl::Notification answered;
  std::thread detach([&] {
    cut_off = datapath.initiator().Detach(device.volume);
    answered.Notify();
  });
  CHECK(Eventually([&] { return HasWaitingChild(datapath.pid()); }, absl::Seconds(20)));
  {
    const UniqueFd lock = CopyOf(datapath.pid(), datapath.socket() + ".lock");
    datapath.Kill();
    answered.WaitForNotificationWithTimeout(absl::Seconds(4));
  }
  detach.join();
  ::kill(target.pid(), SIGCONT);
  INFO(cut_off);
  CHECK(absl::IsDataLoss(cut_off));
  CHECK(absl::IsDataLoss(datapath.initiator().Detach(device.volume)));  // the first answer may be lost
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

// As a caller does.
absl::Status DetachAtLast(Initiator& initiator, const VolumeId& volume) {
  absl::Status status;
  do {
    status = initiator.Detach(volume);
  } while (absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status));
  return status;
}

// So that the child which waits for the write-back is given up, and another one finds that it has ended.
TEST_CASE("a write-back that fails while it takes long is no success") {
  const bool in_one_call = GENERATE(true, false);
  TempDir dir;
  iscsi::FakeTarget target;
  target.Change([](auto& traits) {
    traits.script = [](const iscsi::FakeCommand& command) {
      const bool failing = command.operation == kWrite && command.lba <= 64;
      return failing ? iscsi::Sense(kMediumError, 0x0c) : iscsi::Reaction{};
    };
  });
  Datapath datapath(dir);
  AttachRequest request = RequestFor(target);
  request.limits = {.iops = 0, .bytes_per_second = 200 << 10, .version = 1};
  const Device device = MustAttach(datapath, request);
  {
    const UniqueFd fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
    const std::string data(4 * kMiB, 'x');
    REQUIRE(::pwrite(fd.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  }
  const auto impatient = MakeUserInitiator(datapath.socket(), absl::Seconds(6));
  const absl::Status status = DetachAtLast(in_one_call ? datapath.initiator() : *impatient, device.volume);
  INFO(status);
  CHECK(absl::IsDataLoss(status));
  CHECK(DetachAtLast(datapath.initiator(), device.volume) == status);  // said twice
  CHECK(DetachAtLast(datapath.initiator(), device.volume).ok());
}

// Holds the next flush for 10 s or more, and then has it fail, if it is to.
struct SlowFlush {
  explicit SlowFlush(iscsi::FakeTarget& target, bool fails) {
    target.Change([this, fails](auto& traits) {
      traits.script = [this, fails](const iscsi::FakeCommand& command) {
        iscsi::Reaction reaction;
        if (command.operation == kRead && reads_fail) return iscsi::Sense(kMediumError, 0x11);
        if (command.operation != kSynchronizeCache || !armed.exchange(false)) return reaction;
        if (fails) reaction = iscsi::Sense(kMediumError, 0x0c);
        reaction.kind = iscsi::Reaction::kPings;
        reaction.pings = 2;  // a ping comes after 5 s at the earliest
        held = true;
        return reaction;
      };
    });
  }
  std::atomic<bool> armed = false, held = false, reads_fail = false;
};

// Unlike a write-back's, the kernel does not remember this error: it tells the one that waits.
TEST_CASE("a flush that fails while it takes long is no success, also to a successor") {
  const bool succeeded = GENERATE(false, true);
  TempDir dir;
  iscsi::FakeTarget target;
  SlowFlush flush(target, /*fails=*/true);
  auto datapath = std::make_unique<Datapath>(dir);
  const Device device = MustAttach(*datapath, RequestFor(target));
  WriteUnsynced(device.path, "lost");
  flush.armed = true;
  if (succeeded) {
    const auto impatient = MakeUserInitiator(datapath->socket(), absl::Seconds(1));
    CHECK(absl::IsDeadlineExceeded(impatient->Detach(device.volume)));
    Eventually("the flush has failed",
               [&] { return datapath->initiator().Find(device.volume)->value().counters.errors > 0; });
    auto successor = std::make_unique<Datapath>(dir, std::vector<std::string>{"--take-over"});
    REQUIRE_FALSE(successor->Ended());
    datapath = std::move(successor);
  }
  const absl::Status status = DetachAtLast(datapath->initiator(), device.volume);
  INFO(status);
  CHECK(absl::IsDataLoss(status));
  CHECK(DetachAtLast(datapath->initiator(), device.volume) == status);  // said twice
  CHECK(DetachAtLast(datapath->initiator(), device.volume).ok());
}

TEST_CASE("a read that fails during a detach is no loss") {
  TempDir dir;
  iscsi::FakeTarget target;
  SlowFlush flush(target, /*fails=*/false);
  Datapath datapath(dir);
  const Device device = MustAttach(datapath, RequestFor(target));
  WriteUnsynced(device.path, "kept");
  flush.armed = true;
  absl::Status status;
  std::thread detach([&] { status = DetachAtLast(datapath.initiator(), device.volume); });
  CHECK(Eventually([&] { return flush.held.load(); }, absl::Seconds(20)));
  flush.reads_fail = true;
  {
    const UniqueFd fd(::open(device.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    alignas(4096) static char block[4096];
    CHECK(::pread(fd.get(), block, sizeof(block), 0) < 0);
  }
  detach.join();
  INFO(status);
  CHECK(status.ok());
}

// As where a fence arrives while a pod ends.
TEST_CASE("a device that is failed while it is detached is gone afterwards, and the next one is well") {
  AttachedLun rig(64 * kMiB);
  const pid_t worker = rig.datapath.worker();
  for (int i = 0; i < 10; ++i) {
    std::jthread fails([&](const std::stop_token& stop) {
      while (!stop.stop_requested())
        rig.datapath.initiator().Fail(rig.device.volume, rig.device.target, "fenced").IgnoreError();
    });
    Eventually("the device is detached",
               [&] { return rig.datapath.initiator().Detach(rig.device.volume).ok(); });
    fails = {};
    CHECK(rig.datapath.initiator().List()->empty());
    rig.device = MustAttach(rig.datapath, rig.target.RequestFor(1));
    WriteUnsynced(rig.device.path, "new");
  }
  CHECK(rig.datapath.worker() == worker);
}

}  // namespace
}  // namespace lunkeeper::testing
