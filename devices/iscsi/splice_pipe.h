#pragma once
// A way from a socket to another descriptor that does not lead through this process's memory: a pipe, into
// which the kernel puts the pages that the network brought, and which is then written out. It saves one of
// the two copies of a large read.
//
// Thread safety: none. Nothing stays in the pipe between two calls, and nothing is allocated after the
// constructor. Failure: the result says what went wrong, and the splice_pipe takes less from then on, or
// nothing.

#include <sys/uio.h>

#include <cstddef>

#include "base/unique_fd.h"

namespace lunkeeper {

class SplicePipe {
 public:
  static constexpr size_t kLongestPreface = 64;

  SplicePipe();

  // Whether that many bytes should go this way. Fewer are sooner copied.
  bool TakesSize(size_t size) const { return size >= kAtLeast && size <= most_; }

  enum class Outcome {
    kDelivered,  // or the sink said ENOENT: nobody waits for it any more
    kKept,       // the first `kept` bytes are at `otherwise`, the rest still in the socket
    kLost,       // of what came out of the socket, something is gone
  };
  struct Result {
    Outcome outcome;
    size_t kept = 0;
  };
  // Writes `preface` and `size` bytes of `socket`, which have all come, to `sink` as one message. `otherwise`
  // has room for `size` bytes.
  Result PassThrough(int socket, size_t size, const iovec& preface, int sink, char* otherwise);

 private:
  static constexpr size_t kAtLeast = size_t{32} << 10, kAtMost = size_t{1} << 20;

  size_t FillPipe(int socket, size_t size, const iovec& preface);
  Result TakeBack(size_t inside, size_t size, const iovec& preface, char* otherwise);
  void Close();

  UniqueFd in_, out_;  // the pipe's two ends
  size_t most_ = 0;    // less once something came in more pieces than there is room for
};

// How a request wants its data delivered.
struct Delivery {
  SplicePipe* splice_pipe = nullptr;  // null: at its `data`
  iovec preface{};                    // stays put until the request is done
  int sink = -1;
  bool done = false;  // it was; else the data are at `data`
};

}  // namespace lunkeeper
