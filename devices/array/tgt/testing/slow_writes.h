#pragma once
// For tests in a target that has SLOW_WRITES_LIBRARY.

#include <cstdlib>
#include <fstream>
#include <string>

#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {

// Slows the writes of the tgtd that the fixture starts while this lives. Two of a volume's are carried out at
// once, or none could be overtaken.
class SlowWrites {
 public:
  explicit SlowWrites(ArrayFixture& fixture) : path_(fixture.directory.path() + "/slow") {
    fixture.options.tgtd_io_threads = 2;
    Set(0);
    ::setenv("LD_PRELOAD", SLOW_WRITES_LIBRARY, 1);
    ::setenv("SLOW_WRITES_FILE", path_.c_str(), 1);
  }
  ~SlowWrites() {
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("SLOW_WRITES_FILE");
  }
  void Set(int milliseconds) { std::ofstream(path_) << milliseconds << '\n' << std::flush; }

 private:
  const std::string path_;
};

}  // namespace lunkeeper::testing
