#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <thread>

#include "devices/datapath/testing/rig.h"
#include "devices/libiscsi/testing/stamp.h"

namespace lunkeeper::testing {

struct FileChecker::State {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> writes{0}, errors{0}, wrong{0};
  std::vector<std::thread> threads;

  void Work(int fd, uint64_t first, uint64_t count) {
    std::vector<uint64_t> versions(count);
    std::mt19937_64 random(first);
    auto* data = static_cast<char*>(std::aligned_alloc(kStampBlockBytes, kStampBlockBytes));
    const StampBlock block(data, kStampBlockBytes);
    while (!stop) {
      const uint64_t index = random() % count;
      const auto at = static_cast<off_t>((first + index) * kStampBlockBytes);
      WriteStamp(block, first + index, ++versions[index]);
      if (::pwrite(fd, data, kStampBlockBytes, at) != static_cast<ssize_t>(kStampBlockBytes)) {
        ++errors;
        versions[index] = 0;  // either content is right now
      }
      ++writes;
      const uint64_t other = random() % count;
      if (versions[other] == 0) continue;  // never written, or who knows what became of it
      if (::pread(fd, data, kStampBlockBytes, static_cast<off_t>((first + other) * kStampBlockBytes)) !=
          static_cast<ssize_t>(kStampBlockBytes)) {
        ++errors;
      } else if (ReadStamp(block, first + other) != versions[other]) {
        ++wrong;
      }
    }
    std::free(data);
    ::close(fd);
  }
};

FileChecker::FileChecker(const std::string& path, uint64_t size_bytes, int threads)
    : state_(std::make_unique<State>()) {
  const uint64_t each = size_bytes / kStampBlockBytes / static_cast<uint64_t>(threads);
  for (int i = 0; i < threads; ++i) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    state_->threads.emplace_back(&State::Work, state_.get(), fd, static_cast<uint64_t>(i) * each, each);
  }
}

FileChecker::~FileChecker() { Stop(); }

void FileChecker::Stop() {
  state_->stop = true;
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}

uint64_t FileChecker::writes() const { return state_->writes; }
uint64_t FileChecker::errors() const { return state_->errors; }

void FileChecker::StopAndCheck() {
  Stop();
  CHECK(state_->errors == 0);
  CHECK(state_->wrong == 0);
  CHECK(state_->writes > 0);
}

void RequireProgress(const FileChecker& checker) {
  const uint64_t before = checker.writes();
  Eventually("writes go on", [&] { return checker.writes() > before + 200; });
}

}  // namespace lunkeeper::testing
