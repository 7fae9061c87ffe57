// A supervisor that is killed while one of its children waits for I/O, which nothing interrupts. As in
// datapath_test.cc, all of it real, but for a target that holds a flush.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/testing/rig.h"
#include "devices/datapath/user_initiator.h"
#include "devices/iscsi/testing/fake_target.h"

namespace lunkeeper::testing {
namespace {

// Then all I/O ends that a test left waiting when it failed.
constexpr absl::Duration kKept = absl::Minutes(1);

// A data path in a process namespace, as a container runtime starts it: its supervisor is process 1, and the
// container ends when all of its processes have.
struct Container {
  explicit Container(const TempDir& folder) : dir(folder) { Start(); }
  ~Container() {
    if (pid < 0) return;
    if (!ChildrenOf(pid).empty()) ::kill(ChildrenOf(pid)[0], SIGKILL);
    KillAndWait(pid);
  }
  void Start() {
    pid = Spawn({"unshare", "--pid", "--fork", "--kill-child", LK_DATAPATH_BINARY, "datapath", "--take-over",
                 "--socket=" + dir / "datapath.sock"},
                dir / "datapath.log");
    Eventually("it serves", [&] { return IsServed(dir / "datapath.sock"); });
  }
  pid_t supervisor() const { return ChildrenOf(pid)[0]; }
  bool HasWaitingChild() const { return testing::HasWaitingChild(supervisor()); }
  void KillAndAwaitEnd() {
    ::kill(supervisor(), SIGKILL);
    Eventually("the container ends", [&] { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
    pid = -1;
  }

  const TempDir& dir;
  const std::unique_ptr<Initiator> initiator = MakeUserInitiator(dir / "datapath.sock", absl::Seconds(60));
  pid_t pid = -1;
};

// A child of the supervisor waits for the target, and cannot be killed while it does.
TEST_CASE("a supervisor that is killed beside a detach that writes back costs that volume alone") {
  const bool left_behind = GENERATE(false, true);
  TempDir dir, elsewhere;
  const auto store = StartDuplicateStore(dir / "datapath.sock", kKept);
  Eventually("the store listens", [&] { return ConnectToDuplicateStore(dir / "datapath.sock").ok(); });
  Target target(dir), frozen(elsewhere);
  target.AddLun(1, 64 * kMiB);
  frozen.AddLun(2, 64 * kMiB);
  Container container(dir);
  const auto device = container.initiator->Attach(target.RequestFor(1));
  const auto other = container.initiator->Attach(frozen.RequestFor(2));
  INFO(device.status() << "; " << other.status());
  REQUIRE(device.ok());
  REQUIRE(other.ok());
  FileChecker checker(device->path, 32 * kMiB, 4);
  RequireProgress(checker);
  {
    const UniqueFd fd(::open(other->path.c_str(), O_RDWR | O_CLOEXEC));
    ::kill(frozen.pid(), SIGSTOP);
    const std::vector<char> data(4 * kMiB, 'd');
    REQUIRE(::pwrite(fd.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  }
  absl::Status detached;
  std::jthread detach([&] { detached = container.initiator->Detach(other->volume); });
  Eventually("a child waits", [&] { return container.HasWaitingChild(); });
  if (left_behind) {
    detach.join();
    CHECK(container.HasWaitingChild());
  }
  container.KillAndAwaitEnd();
  container.Start();
  RequireProgress(checker);
  checker.StopAndCheck();
  CHECK_FALSE(IsBound(other->path));
  ::kill(frozen.pid(), SIGCONT);
  if (left_behind) {
    CHECK_FALSE(detached.ok());
    detached = container.initiator->Detach(other->volume);
  } else {
    detach.join();  // it waited for the next data path
  }
  CHECK(absl::IsDataLoss(detached));
  CHECK(absl::IsDataLoss(container.initiator->Detach(other->volume)));  // the first answer may be lost
  CHECK(container.initiator->Detach(other->volume).ok());
  CHECK(container.initiator->Attach(frozen.RequestFor(2)).ok());
}

// The target answers all but a flush, and that one holds all that want to change the file's size.
TEST_CASE("a supervisor that is killed beside a growth that waits ends") {
  TempDir dir;
  const auto store = StartDuplicateStore(dir / "datapath.sock", kKept);
  Eventually("the store listens", [&] { return ConnectToDuplicateStore(dir / "datapath.sock").ok(); });
  std::atomic<bool> flushing = false;
  iscsi::FakeTarget target;
  Container container(dir);
  const auto device = container.initiator->Attach(RequestFor(target));
  REQUIRE(device.ok());
  target.Change([&flushing](auto& traits) {
    traits.script = [&flushing](const iscsi::FakeCommand& command) {
      constexpr uint8_t kFlush10 = 0x35, kFlush16 = 0x91;
      const bool flush = command.operation == kFlush10 || command.operation == kFlush16;
      if (flush) flushing = true;
      return flush ? iscsi::Reaction{.kind = iscsi::Reaction::kHold} : iscsi::Reaction{};
    };
  });
  const pid_t flush = Spawn({"sync", "--data", device->path}, dir / "sync.log");
  // A program may wait so while it is loaded, too, and then the growth would come first.
  Eventually("the flush waits", [&] { return flushing && IsUninterruptible(flush); });
  absl::Status grown;
  std::jthread resize([&] { grown = container.initiator->Resize(device->volume).status(); });
  Eventually("a child waits", [&] { return container.HasWaitingChild(); });
  container.KillAndAwaitEnd();
  resize.join();
  CHECK_FALSE(grown.ok());
  int status = 0;
  Eventually("the flush fails", [&] { return ::waitpid(flush, &status, WNOHANG) == flush; });
  CHECK(status != 0);
  container.Start();
  CHECK(absl::IsDataLoss(container.initiator->Detach(device->volume)));
}

}  // namespace
}  // namespace lunkeeper::testing
