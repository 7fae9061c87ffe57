#include "devices/array/tgt/pool_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "base/testing/test_host.h"

namespace lunkeeper::testing {
namespace {

int CountOpen(const std::string& path) {
  int open = 0;
  std::error_code closed_meanwhile;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open += std::filesystem::read_symlink(entry.path(), closed_meanwhile) == path ? 1 : 0;
  return open;
}

// What a killed program leaves behind: a process that has its lock, and lets it go at `release`.
class OrphanedLock {
 public:
  explicit OrphanedLock([[maybe_unused]] UniqueFd lock) {
    REQUIRE(::pipe(release_) == 0);
    child_ = ::fork();
    if (child_ != 0) return;
    ::close(release_[1]);
    char end;
    [[maybe_unused]] const ssize_t got = ::read(release_[0], &end, 1);
    ::_exit(0);
  }
  ~OrphanedLock() {
    Release();
    ::close(release_[0]);
    ::waitpid(child_, nullptr, 0);
  }
  OrphanedLock(const OrphanedLock&) = delete;
  OrphanedLock& operator=(const OrphanedLock&) = delete;
  void Release() {
    if (release_[1] >= 0) ::close(release_[1]);
    release_[1] = -1;
  }

 private:
  int release_[2];
  pid_t child_;
};

}  // namespace

TEST_CASE("a pool that a killed program's child still holds is waited for") {
  TempDir directory;
  OrphanedLock child(LockPool(directory.path()).value());
  REQUIRE(CountOpen(directory / "lock") == 0);
  absl::Status locked;
  std::thread next([&] { locked = LockPool(directory.path()).status(); });
  CHECK(Eventually([&] { return CountOpen(directory / "lock") == 1; }));  // it tries
  child.Release();
  next.join();
  CHECK(locked == absl::OkStatus());
}

TEST_CASE("a pool that another program has open is refused") {
  TempDir directory;
  const OrphanedLock other(LockPool(directory.path()).value());
  CHECK(absl::IsFailedPrecondition(LockPool(directory.path()).status()));
}

}  // namespace lunkeeper::testing
