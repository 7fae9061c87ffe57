#pragma once
// What the tests of every folder need of their host: a directory, a port, and a way to wait. Thread-safe, but
// for a TempDir, which is its owner's. What cannot be had throws std::runtime_error.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"

namespace lunkeeper::testing {

// A new directory, removed with all it holds, also when the test fails.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = "/tmp");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A TCP port of 127.0.0.1 where nobody listens. It lies below the ports that the kernel gives to outgoing
// connections, so it stays free while a server that is restarted is down; another test may still take it.
uint16_t FreePort();

// Looks until the condition is true; false if that has not come in time.
bool Eventually(const std::function<bool()>& condition, absl::Duration within = absl::Seconds(30));

}  // namespace lunkeeper::testing
