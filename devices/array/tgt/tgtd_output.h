#pragma once
// What tgtd says, brought into this program's log. tgtd outlives this program, so it writes to a FIFO, which
// holds 64 KiB until the next start reads it. Neither side ever waits for the other: what does not fit is
// lost.
//
// One thread uses it; others may ask for what it counts. Without the FIFO tgtd's words are lost, and that is
// no error.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace lunkeeper {

class TgtdOutput {
 public:
  using Tell = std::function<void(const std::string& line)>;
  // `path`: the FIFO, found or made; empty: none. `tell` gets each line.
  TgtdOutput(const std::string& path, Tell tell);

  // What tgtd's standard output and error are opened as, with O_RDWR and O_NONBLOCK.
  const std::string& path() const { return path_; }
  // Tells what tgtd has said since the last call, of very many lines the first ones and how many more there
  // were.
  void RelayLines();
  // Logins of which tgtd has said that it refused them: by a wrong secret, or by an account that the target
  // does not have. Of others it says nothing.
  uint64_t refused_logins() const { return refused_logins_; }

 private:
  std::string path_;
  const Tell tell_;
  UniqueFd fifo_;
  std::string rest_;  // of a line that has not ended
  std::atomic<uint64_t> refused_logins_ = 0;
};

}  // namespace lunkeeper
