#pragma once
// Standard error goes to a file while it lives, for tests of what is logged. One at a time.

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/unique_fd.h"

namespace lunkeeper::testing {

class CapturedLog {
 public:
  explicit CapturedLog(std::string path) : path_(std::move(path)), saved_(::dup(STDERR_FILENO)) {
    const UniqueFd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ::dup2(file.get(), STDERR_FILENO);
  }
  ~CapturedLog() { ::dup2(saved_.get(), STDERR_FILENO); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::string path_;
  const UniqueFd saved_;
};

}  // namespace lunkeeper::testing
