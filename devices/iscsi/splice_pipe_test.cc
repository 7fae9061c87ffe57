// Data that go from a socket to where they are wanted without a copy through this process, or do not.

#include "devices/iscsi/splice_pipe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 4096);
  return text;
}

// Takes all, as the kernel's FUSE does, or nothing.
class Sink {
 public:
  explicit Sink(bool takes = true)
      : file_(takes ? ::memfd_create("sink", MFD_CLOEXEC) : ::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}
  int fd() const { return file_.get(); }
  // What it has been given since the last call.
  std::string Taken() {
    const off_t size = ::lseek(fd(), 0, SEEK_CUR);
    std::string text(static_cast<size_t>(size), '\0');
    REQUIRE(::pread(fd(), text.data(), text.size(), 0) == size);
    REQUIRE(::lseek(fd(), 0, SEEK_SET) == 0);
    return text;
  }

 private:
  UniqueFd file_;
};

struct Sockets {
  Sockets() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    far.Reset(ends[0]);
    near.Reset(ends[1]);
    const int room = 1 << 20;  // or as much of it as anybody may have
    REQUIRE(::setsockopt(far.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
  }
  void Send(const std::string& text) {
    REQUIRE(::send(far.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  UniqueFd far, near;
};

char preface[] = "preface";
const iovec kPreface = {preface, sizeof preface - 1};

TEST_CASE("a splice pipe passes on what has come, as one message behind its preface") {
  SplicePipe splice_pipe;
  Sockets sockets;
  Sink sink;
  for (const size_t size : {size_t{32} << 10, size_t{48} << 10, size_t{128} << 10}) {
    REQUIRE(splice_pipe.TakesSize(size));
    const std::string text = Pattern(size);
    std::string otherwise(size, '-');
    sockets.Send(text + "next");
    const auto result =
        splice_pipe.PassThrough(sockets.near.get(), size, kPreface, sink.fd(), otherwise.data());
    CHECK(result.outcome == SplicePipe::Outcome::kDelivered);
    CHECK(sink.Taken() == "preface" + text);
    CHECK(otherwise == std::string(size, '-'));
    char next[5] = {};
    CHECK(::recv(sockets.near.get(), next, 4, 0) == 4);
    CHECK(std::string(next) == "next");
  }
  CHECK_FALSE(splice_pipe.TakesSize(4096));
  CHECK(splice_pipe.TakesSize(size_t{1} << 20));
}

TEST_CASE("what a sink does not take is kept, and nothing more goes that way") {
  SplicePipe splice_pipe;
  Sockets sockets;
  const Sink sink(false);
  const std::string text = Pattern(size_t{64} << 10);
  std::string otherwise(text.size(), '-');
  sockets.Send(text);
  const auto result =
      splice_pipe.PassThrough(sockets.near.get(), text.size(), kPreface, sink.fd(), otherwise.data());
  CHECK(result.outcome == SplicePipe::Outcome::kKept);
  CHECK(result.kept == text.size());
  CHECK(otherwise == text);
  CHECK_FALSE(splice_pipe.TakesSize(text.size()));
}

TEST_CASE(
    "what comes in more pieces than a splice pipe has room for is kept, and as much is not taken again") {
  SplicePipe splice_pipe;
  Sockets sockets;
  Sink sink;
  const std::string text = Pattern(size_t{64} << 10);
  std::string otherwise(text.size(), '-');
  for (size_t at = 0; at < text.size(); at += 100) sockets.Send(text.substr(at, 100));
  const auto result =
      splice_pipe.PassThrough(sockets.near.get(), text.size(), kPreface, sink.fd(), otherwise.data());
  CHECK(result.outcome == SplicePipe::Outcome::kKept);
  REQUIRE(result.kept < text.size());
  CHECK(sink.Taken().empty());
  const ssize_t rest =
      ::recv(sockets.near.get(), otherwise.data() + result.kept, text.size() - result.kept, MSG_WAITALL);
  CHECK(static_cast<size_t>(rest) == text.size() - result.kept);
  CHECK(otherwise == text);

  const std::string half = text.substr(0, text.size() / 2);
  CHECK_FALSE(splice_pipe.TakesSize(text.size()));
  REQUIRE(splice_pipe.TakesSize(half.size()));
  sockets.Send(half);
  const auto next =
      splice_pipe.PassThrough(sockets.near.get(), half.size(), kPreface, sink.fd(), otherwise.data());
  CHECK(next.outcome == SplicePipe::Outcome::kDelivered);
  CHECK(sink.Taken() == "preface" + half);
}

// A LUN with a pattern on it, and reads of it that want their data delivered.
struct DeliveringRig : LunRig {
  explicit DeliveringRig(bool takes = true, milliseconds command_timeout = seconds(30))
      : LunRig([=](LunOptions& changed) { changed.command_timeout = command_timeout; }),
        sink(takes),
        text(Pattern(kSize)) {
    Start();
    TestRequest write(LunOp::kWrite, 0, kSize);
    std::copy(text.begin(), text.end(), write.buffer.begin());
    REQUIRE(Do(write) == 0);
  }
  // Whether its data were delivered; they are right in any case.
  bool Read() {
    TestRequest read(LunOp::kRead, 0, kSize, '-');
    read.delivery = {.splice_pipe = &splice_pipe, .preface = kPreface, .sink = sink.fd()};
    REQUIRE(Do(read) == 0);
    const std::string at_data(read.buffer.begin(), read.buffer.end());
    if (read.delivery.done) {
      REQUIRE(sink.Taken() == "preface" + text);
    } else {
      REQUIRE(at_data == text);
    }
    return read.delivery.done;
  }

  static constexpr size_t kSize = size_t{128} << 10;
  SplicePipe splice_pipe;
  Sink sink;
  const std::string text;
};

TEST_CASE("the data of large reads are delivered where they are wanted") {
  DeliveringRig rig;
  // Only where data did not come together with their header, as the first do, and many on a busy machine.
  bool delivered = false;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); !delivered && absl::Now() < end;)
    for (int i = 0; i < 20; ++i) delivered |= rig.Read();
  REQUIRE(delivered);
  TestRequest plain(LunOp::kRead, 0, rig.text.size());
  REQUIRE(rig.Do(plain) == 0);
  REQUIRE(std::string(plain.buffer.begin(), plain.buffer.end()) == rig.text);
}

TEST_CASE("data that a sink does not take arrive where they would have without it") {
  DeliveringRig rig(false);
  for (int i = 0; i < 5; ++i) REQUIRE_FALSE(rig.Read());
  REQUIRE(rig.state.logins == 1);
}

// A second, with a limit of 600 ms for silence. The first one has the next headers received alone, or nothing
// would be delivered.
TEST_CASE("a large read whose data come slowly is no silence") {
  DeliveringRig rig(true, milliseconds(1800));
  rig.Read();
  rig.target.Change([](auto& traits) { traits.script = Once(kRead, {iscsi::Reaction::kTrickle}, 3); });
  for (int i = 0; i < 3; ++i) rig.Read();
  REQUIRE(rig.state.logins == 1);
  REQUIRE_FALSE(rig.state.stalled);
}

TEST_CASE("data that are cut off in the middle are delivered once, after the next login") {
  DeliveringRig rig;
  for (int i = 0; i < 5; ++i) {
    rig.Read();
    rig.target.Change([](auto& traits) { traits.script = Once(kRead, {iscsi::Reaction::kHalf}); });
    rig.Read();
  }
  REQUIRE(rig.state.logins == 6);
  REQUIRE(rig.sink.Taken().empty());
}

}  // namespace
}  // namespace lunkeeper
