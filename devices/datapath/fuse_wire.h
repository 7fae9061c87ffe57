#pragma once
// The kernel's FUSE protocol (linux/fuse.h) as far as one file, the root of its own file system, needs it.
// Pure functions over bytes; the kernel is trusted no further than the bounds checked here. Thread-safe.

#include <linux/fuse.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lunkeeper::fuse {

constexpr uint32_t kMaxTransfer = 1U << 20;  // of one READ or WRITE
// A WRITE's data begin after this.
constexpr size_t kHeadSize = sizeof(fuse_in_header) + sizeof(fuse_write_in);
// INIT: the kernel can send requests again (6.9 and later).
constexpr uint64_t kHasResend = uint64_t{1} << 39;
constexpr int32_t kNotifyResend = 7;

// What the kernel wants, as one of the few things this file can do.
enum class FuseAction {
  kRead,
  kWrite,
  kFlush,
  kDiscard,  // deallocate; must read as zeroes afterwards
  kWriteZeroes,
  kAttributes,
  kOpen,
  kFileSystem,   // statfs
  kAcknowledge,  // nothing to do, answer OK
  kIgnore,       // nothing to do, and no answer
  kUnsupported,  // answer ENOSYS: the kernel does not ask again
  kRefuse,       // answer EOPNOTSUPP
};

struct Request {
  FuseAction action = FuseAction::kRefuse;
  uint64_t unique = 0;  // to be answered as it is, with any marks of the kernel's
  uint64_t offset = 0;
  uint64_t length = 0;
};

// `head`: the first min(size, kHeadSize) bytes of a request of `size` bytes. nullopt: not a request of this
// protocol.
std::optional<Request> ParseRequest(const char* head, size_t size);

struct InitAnswer {
  struct {
    fuse_out_header header;
    fuse_init_out body;
  } packet;
  bool can_resend;
};
// `data`: a whole INIT request. nullopt: no INIT, or of a protocol older than 7.31.
std::optional<InitAnswer> AnswerInit(const char* data, size_t size);

fuse_attr_out FileAttributes(uint64_t size_bytes);
fuse_statfs_out FileSystem(uint64_t size_bytes);

}  // namespace lunkeeper::fuse
