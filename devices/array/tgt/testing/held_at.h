#pragma once
// A call of the array that stands still at a fail point while a test does something else. A test on one
// thread makes, arms and lets go.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/test_host.h"

namespace lunkeeper::testing {

// From Arm on, the first call that comes to a fail point stays there until it is let go. Made before the
// array's threads and gone after them, since it changes the environment.
class HeldAt {
 public:
  explicit HeldAt(const std::string& point) {
    std::ofstream(directory_ / "hold")
        << "#!/bin/sh\ncd " << directory_.path() << "\n: > reached\nwhile [ ! -e go ]; do sleep 0.02; done\n";
    std::ofstream(directory_ / "once");
    std::filesystem::permissions(directory_ / "hold", std::filesystem::perms::owner_all);
    ::setenv("LUNKEEPER_FAIL_POINT", (point + ":exec=" + (directory_ / "hold")).c_str(), 1);
    ::setenv("LUNKEEPER_FAIL_POINT_ONCE", (directory_ / "once").c_str(), 1);
  }
  ~HeldAt() {
    ::unsetenv("LUNKEEPER_FAIL_POINT");
    ::unsetenv("LUNKEEPER_FAIL_POINT_ONCE");
  }
  HeldAt(const HeldAt&) = delete;
  HeldAt& operator=(const HeldAt&) = delete;
  void Arm() const { std::filesystem::remove(directory_ / "once"); }
  bool IsReached() const { return std::filesystem::exists(directory_ / "reached"); }
  void LetGo() const { std::ofstream(directory_ / "go"); }

 private:
  TempDir directory_;
};

}  // namespace lunkeeper::testing
