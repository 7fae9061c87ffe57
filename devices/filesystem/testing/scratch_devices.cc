#include "devices/filesystem/testing/scratch_devices.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/subprocess.h"

namespace lunkeeper {
namespace {

std::string OutputOf(const std::string& command) {
  const auto result = RunCommand({"sh", "-c", command}, Soon());
  INFO(command);
  REQUIRE(result.ok());
  INFO(result->output);
  REQUIRE(result->exit_code == 0);
  return std::string(absl::StripAsciiWhitespace(result->output));
}

// Answers the first request (INIT; linux/fuse.h), takes all others, and ends when the connection does.
void TakeAndIgnore(int channel) {
  std::vector<char> request(FUSE_MIN_READ_BUFFER + 131072);
  bool first = true;
  while (::read(channel, request.data(), request.size()) >= 0 || errno == EINTR || errno == ENOENT) {
    if (!std::exchange(first, false)) continue;
    fuse_in_header in = {};
    std::memcpy(&in, request.data(), sizeof in);
    struct {
      fuse_out_header header;
      fuse_init_out init;
    } answer = {};
    answer.header.len = sizeof answer;
    answer.header.unique = in.unique;
    answer.init.major = FUSE_KERNEL_VERSION;
    answer.init.minor = FUSE_KERNEL_MINOR_VERSION;
    answer.init.max_write = 65536;
    if (::write(channel, &answer, sizeof answer) != sizeof answer) return;
  }
}

}  // namespace

ScratchLoop::ScratchLoop(const testing::TempDir& directory, const std::string& name, uint64_t bytes,
                         bool read_only)
    : file_(directory.path() + "/" + name) {
  const UniqueFd file(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  path_ = OutputOf(absl::StrCat("losetup --find --show ", read_only ? "--read-only " : "", file_));
}

ScratchLoop::~ScratchLoop() { Shell("losetup --detach " + path_); }

void ScratchLoop::Grow(uint64_t bytes) {
  REQUIRE(::truncate(file_.c_str(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(Shell("losetup --set-capacity " + path_));
}

MountPoint::MountPoint(const testing::TempDir& directory, const std::string& name)
    : path_(directory.path() + "/" + name) {
  std::filesystem::create_directory(path_);
}

MountPoint::~MountPoint() {
  while (::umount2(path_.c_str(), MNT_DETACH) == 0) {
  }
}

DeadMount::DeadMount(const testing::TempDir& directory, const std::string& name)
    : point_(directory, name), channel_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
  const std::string options = absl::StrCat("fd=", channel_.get(), ",rootmode=40000,user_id=0,group_id=0");
  REQUIRE(::mount("lunkeeper-test", point_.path().c_str(), "fuse", 0, options.c_str()) == 0);
  server_ = std::thread([fd = channel_.get()] { TakeAndIgnore(fd); });
}

DeadMount::~DeadMount() {
  ::umount2(point_.path().c_str(),
            MNT_FORCE);  // aborts the connection: all who wait get an error, the server too
  server_.join();
}

bool Shell(const std::string& command) {
  const auto result = RunCommand({"sh", "-c", command}, Soon());
  return result.ok() && result->exit_code == 0;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAt(const std::string& path, uint64_t at, const std::string& bytes) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)) ==
          static_cast<ssize_t>(bytes.size()));
  REQUIRE(::fsync(file.get()) == 0);
}

std::string Digest(const std::string& path) { return OutputOf("sha256sum < " + path); }

}  // namespace lunkeeper
