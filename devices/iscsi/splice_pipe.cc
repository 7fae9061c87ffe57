// The path of a large read: socket -> pipe -> FUSE device, all inside the kernel. The answer's header goes
// into the pipe first (vmsplice), so that header and data leave it as one message, which is what FUSE wants.
//
// Nothing may be lost on the way. What went into the pipe and cannot go on is read back into the request's
// own memory (kKept), and the session goes on as if it had been received there; only what cannot even be read
// back is kLost, and then the connection is given up and the read sent again.

#include "devices/iscsi/splice_pipe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace lunkeeper {
namespace {

// As 256 pieces of any size up to what the kernel keeps in one: what came in small packets is a piece each.
// More is for those who may go past the system's limits.
constexpr int kPipeBytes = 1 << 20;

}  // namespace

SplicePipe::SplicePipe() {
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return;
  out_.Reset(ends[0]);
  in_.Reset(ends[1]);
  if (::fcntl(in_.get(), F_SETPIPE_SZ, kPipeBytes) >= kPipeBytes) most_ = kAtMost;
}

void SplicePipe::Close() {
  in_.Reset();
  out_.Reset();
  most_ = 0;
}

SplicePipe::Result SplicePipe::PassThrough(int socket, size_t size, const iovec& preface, int sink,
                                           char* otherwise) {
  const size_t whole = preface.iov_len + size;
  const size_t inside = FillPipe(socket, size, preface);
  if (inside < whole) {
    // The data came in more pieces than the pipe has places. It will come so again: try smaller reads only.
    most_ = size / 2;
    return TakeBack(inside, size, preface, otherwise);
  }
  const ssize_t written = ::splice(out_.get(), nullptr, sink, nullptr, whole, SPLICE_F_NONBLOCK);
  if (written == static_cast<ssize_t>(whole)) return {Outcome::kDelivered};
  if (written >= 0 || errno != ENOENT) {
    const Result result = TakeBack(whole, size, preface, otherwise);
    Close();
    return result;
  }
  // It has been taken all the same; should it not have been, it must not come out before the next one's.
  int left = 0;
  if (::ioctl(out_.get(), FIONREAD, &left) != 0 || left != 0) Close();
  return {Outcome::kDelivered};
}

// How many bytes are inside now.
size_t SplicePipe::FillPipe(int socket, size_t size, const iovec& preface) {
  const ssize_t begun = ::vmsplice(in_.get(), &preface, 1, SPLICE_F_NONBLOCK);
  size_t inside = begun > 0 ? static_cast<size_t>(begun) : 0;
  if (inside < preface.iov_len) return inside;
  while (inside < preface.iov_len + size) {
    const ssize_t got = ::splice(socket, nullptr, in_.get(), nullptr, preface.iov_len + size - inside,
                                 SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got <= 0) break;
    inside += static_cast<size_t>(got);
  }
  return inside;
}

SplicePipe::Result SplicePipe::TakeBack(size_t inside, size_t size, const iovec& preface, char* otherwise) {
  char skipped[kLongestPreface];
  const iovec parts[2] = {{skipped, preface.iov_len}, {otherwise, size}};
  const ssize_t back = inside == 0 ? 0 : ::readv(out_.get(), parts, 2);
  if (back != static_cast<ssize_t>(inside)) {
    Close();
    return {Outcome::kLost};
  }
  return {Outcome::kKept, inside > preface.iov_len ? inside - preface.iov_len : 0};
}

}  // namespace lunkeeper
