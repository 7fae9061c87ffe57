// Tools that are not killed by us, and growth that was killed by somebody else: on real loop devices. Needs
// root.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "devices/filesystem/device_image.h"
#include "devices/filesystem/testing/filesystem_fixture.h"
#include "devices/filesystem/testing/scratch_devices.h"
#include "devices/filesystem/tool_runner.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kBefore = 64 * kMiB;
constexpr uint64_t kAfter = 300 * 1024 * kMiB;  // sparse; growing to it takes seconds
constexpr char kGrown[] = "array:volume";

absl::Time In(int milliseconds) { return absl::Now() + absl::Milliseconds(milliseconds); }

// A call whose time was up before its tool began has begun nothing: it is made again, as often as the machine
// is too slow for it.
template <typename Call>
absl::Status UntilBegun(Call call) {
  absl::Status status = call();
  while (absl::IsDeadlineExceeded(status)) status = call();
  return status;
}

TEST_CASE("a tool that a deadline cuts short goes on, and a later call has its result") {
  testing::TempDir directory;
  ScratchLoop device(directory, "disk", kMiB);
  const std::string go = directory / "go";
  // The device is an argument like any other to it.
  const std::vector<std::string> tool = {
      "sh", "-c", absl::StrCat("until [ -e ", go, " ]; do sleep 0.05; done; echo done; exit 3"),
      device.path()};
  ToolRunner runner;
  CHECK(absl::IsAborted(UntilBegun([&] { return runner.RunTool(device.path(), tool, In(100)).status(); })));
  CHECK(absl::IsAborted(runner.AwaitTool(device.path(), In(0))));
  // Another one does not start beside it.
  CHECK(absl::IsAborted(runner.RunTool(device.path(), {"true", device.path()}, In(0)).status()));
  CHECK(runner.HasTool(device.path(), tool));
  std::ofstream(go) << "now";
  CHECK(runner.AwaitTool(device.path(), Soon()).ok());
  const auto result = runner.RunTool(device.path(), tool, Soon());
  REQUIRE(result.ok());
  CHECK(result->exit_code == 3);
  CHECK(result->output == "done\n");
  CHECK_FALSE(runner.HasTool(device.path(), tool));
}

// A process of the name that has a device exclusively, as the tools do, until its time is over or it is
// killed.
class ExclusiveUser {
 public:
  ExclusiveUser(const std::string& device, const std::string& name, int seconds) {
    std::filesystem::copy_file("/bin/sleep", bin_ / name);
    const UniqueFd held(::open(device.c_str(), O_RDWR | O_EXCL));
    REQUIRE(held);
    pid_ = ::fork();
    const std::string time = absl::StrCat(seconds);
    if (pid_ == 0) {
      ::execl((bin_ / name).c_str(), name.c_str(), time.c_str(), nullptr);
      ::_exit(127);
    }
    REQUIRE(pid_ > 0);
  }
  ~ExclusiveUser() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string number() const { return absl::StrCat(pid_); }

 private:
  testing::TempDir directory_;
  std::filesystem::path bin_ = directory_.path();
  pid_t pid_ = -1;
};

bool Mentions(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

TEST_CASE("a tool that outlived the program that started it is not joined by a second one") {
  testing::TempDir directory, records;
  ScratchLoop device(directory, "disk", 16 * kMiB);
  const ExclusiveUser tool(device.path(), "mke2fs", 600);
  ToolRunner runner;
  const auto filesystem = MakeToolFilesystem(records.path());
  const absl::Status ran = UntilBegun([&] {
    return runner.RunTool(device.path(), {"true", device.path()}, In(500)).status();
  });
  const absl::Status made = UntilBegun([&] {
    return filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, In(500));
  });
  for (const absl::Status& status : {ran, made}) {
    INFO(status);
    CHECK(absl::IsAborted(status));
    CHECK(Mentions(status, absl::StrCat("mke2fs (process ", tool.number(), ") is still at work")));
  }
}

// A node plugin was killed; what it ran on the device is just being ended by the kernel.
TEST_CASE("a device that is let go a moment later is formatted by the same call") {
  testing::TempDir directory, records;
  ScratchLoop device(directory, "disk", 16 * kMiB);
  const auto filesystem = MakeToolFilesystem(records.path());
  const ExclusiveUser killed(device.path(), "anything", 1);
  CHECK(filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, Soon()) == absl::OkStatus());
}

TEST_CASE("what keeps a device is named by the call that refuses it") {
  testing::TempDir directory, records;
  ScratchLoop device(directory, "disk", 16 * kMiB);
  const auto filesystem = MakeToolFilesystem(records.path());
  const ExclusiveUser user(device.path(), "vgscan", 600);
  const absl::Status status = filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, Soon());
  INFO(status);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Mentions(status, absl::StrCat("vgscan (process ", user.number(), ")")));
  // It is as it was.
  CHECK(filesystem->Probe(device.path(), Soon())->description == "nothing");
}

// Zeroing the log of an XFS on a slow array can take longer than any call.
TEST_CASE("a format that a deadline cuts short goes on, and the next call has what it made") {
  testing::TempDir directory, records;
  std::optional<ScratchLoop> device;
  const auto filesystem = MakeToolFilesystem(records.path());
  const auto make = [&](absl::Time deadline) {
    return filesystem->Make({device->path(), FilesystemType::kExt4, kVolume}, deadline);
  };
  absl::Status status;
  // A busy machine may look for the tool's end so late that it has come in time.
  for (int i = 0; i < 20 && !absl::IsAborted(status); ++i) {
    device.emplace(directory, absl::StrCat("disk-", i), uint64_t{8} << 40);  // sparse; takes half a second
    int milliseconds = 0;  // enough for the tool to begin, and for no more
    status = UntilBegun([&] { return make(In(milliseconds += 10)); });
  }
  REQUIRE(absl::IsAborted(status));
  // Nobody has the result yet.
  REQUIRE(filesystem->Probe(device->path(), Soon())->content == Content::kBlank);
  CHECK(make(Soon()) == absl::OkStatus());
  CHECK(filesystem->Probe(device->path(), Soon())->content == Content::kFilesystem);
  CHECK(filesystem->Check({device->path(), FilesystemType::kExt4, kGrown}, Soon()) == absl::OkStatus());
}

// A volume's device with an ext4 that holds files, and is smaller than it.
struct GrowthFixture {
  GrowthFixture() {
    REQUIRE(filesystem->Make({device.path(), FilesystemType::kExt4, kVolume}, Soon()).ok());
    Mounted([this] {
      for (int file = 0; file < 40; ++file)
        std::ofstream(absl::StrCat(mount.path(), "/", file)) << Content(file);
    });
    device.Grow(kAfter);
  }

  template <typename Work>
  void Mounted(Work work) {
    REQUIRE(
        mounter->MountDevice({device.path(), mount.path(), FilesystemType::kExt4, {}, false}, Soon()).ok());
    work();
    REQUIRE(mounter->Unmount(mount.path(), false, Soon()).ok());
  }
  static std::string Content(int file) { return std::string(300'000, static_cast<char>('A' + file)); }
  UnmountedFilesystem Ext4() const { return {device.path(), FilesystemType::kExt4, kGrown}; }
  bool HasRecord() const { return !std::filesystem::is_empty(records.path()); }

  // As an orchestrator repeats it. Also a killed tool has the device for a moment.
  absl::Status CheckUntilDone() {
    for (;;) {
      const absl::Status status = filesystem->Check(Ext4(), In(5000));
      if (!absl::IsAborted(status) && !absl::IsDeadlineExceeded(status)) return status;
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  absl::Status GrowFor(absl::Duration time) {
    return UntilBegun([&] { return filesystem->GrowUnmounted(Ext4(), absl::Now() + time); });
  }

  // Starts a growth and kills its resize2fs after that time; false: it was done before, or had not begun.
  bool KillGrowth(absl::Duration after) {
    if (!absl::IsAborted(GrowFor(after)) || !HasRecord()) return false;
    return Shell(absl::StrCat("pkill -9 -x -P ", ::getpid(), " resize2fs"));
  }

  testing::TempDir directory, records;
  ScratchLoop device{directory, "disk", kBefore};
  MountPoint mount{directory, "mnt"};
  std::unique_ptr<Filesystem> filesystem = MakeToolFilesystem(records.path());
  std::unique_ptr<Mounter> mounter = MakeLinuxMounter();
};

// A growth that was killed at work, after so long. Some tries come too early or too late.
struct KilledGrowth {
  std::unique_ptr<GrowthFixture> fixture;
  absl::Duration after;
};

KilledGrowth KillOneGrowth(std::mt19937& random) {
  for (int tries = 0; tries < 20; ++tries) {
    auto fixture = std::make_unique<GrowthFixture>();
    const absl::Duration after = absl::Milliseconds(100 + random() % 1500);
    if (fixture->KillGrowth(after)) return {std::move(fixture), after};
  }
  throw std::runtime_error("no growth was killed at work in 20 tries");
}

TEST_CASE("a growth that was killed anywhere is repaired by the next check, and every file is whole") {
  const char* const wanted = std::getenv("GROWTH_KILLS");
  int kills = 3;
  if (wanted != nullptr) REQUIRE(absl::SimpleAtoi(wanted, &kills));
  std::mt19937 random(std::random_device{}());
  for (int kill = 0; kill < kills; ++kill) {
    const auto [growth, after] = KillOneGrowth(random);
    GrowthFixture& f = *growth;
    // As a plugin that knows nothing of it, in half of the rounds.
    if (kill % 2 == 0) f.filesystem = MakeToolFilesystem(f.records.path());
    const absl::Status checked = f.CheckUntilDone();
    INFO("killed after " << after << ": " << checked);
    REQUIRE(checked.ok());
    CHECK(Shell("e2fsck -f -n " + f.device.path()));
    f.Mounted([&f] {
      for (int file = 0; file < 40; ++file)
        CHECK(ReadFile(absl::StrCat(f.mount.path(), "/", file)) == GrowthFixture::Content(file));
    });
  }
}

TEST_CASE("the record of a growth says nothing about a file system that was used since") {
  std::mt19937 random(std::random_device{}());
  const KilledGrowth killed = KillOneGrowth(random);
  GrowthFixture& f = *killed.fixture;
  REQUIRE(f.HasRecord());
  // By a person, once the killed tool has let go of the device.
  REQUIRE(Shell("until e2fsck -f -y " + f.device.path() + "; [ $? -le 3 ]; do sleep 0.1; done"));
  f.Mounted([&f] { std::ofstream(f.mount.path() + "/new") << "kept"; });
  REQUIRE(f.CheckUntilDone().ok());
  CHECK_FALSE(f.HasRecord());
  f.Mounted([&f] { CHECK(ReadFile(f.mount.path() + "/new") == "kept"); });
}

TEST_CASE("a growth that was done while nobody waited needs no repair") {
  GrowthFixture f;
  CHECK(absl::IsAborted(f.GrowFor(absl::Milliseconds(200))));
  const absl::Status status = f.CheckUntilDone();
  INFO(status);
  REQUIRE(status.ok());
  CHECK_FALSE(f.HasRecord());
  CHECK(f.filesystem->Probe(f.device.path(), Soon())->filesystem_bytes == kAfter);
}

}  // namespace
}  // namespace lunkeeper
