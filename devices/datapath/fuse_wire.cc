// Layouts and opcodes are those of linux/fuse.h, protocol 7.31 and later. The loop device on top uses few of
// them: READ, WRITE, FSYNC and FALLOCATE for I/O, GETATTR and SETATTR for the size, OPEN and RELEASE once.
// Every other opcode is answered ENOSYS, after which the kernel does not send it again.

#include "devices/datapath/fuse_wire.h"

#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace lunkeeper::fuse {
namespace {

// Requests of older minor versions are shorter; what is missing is zero.
template <class T>
T ReadBody(const char* head, size_t size) {
  T body{};
  const size_t available = std::min(size, kHeadSize) - sizeof(fuse_in_header);
  std::memcpy(&body, head + sizeof(fuse_in_header), std::min(sizeof(body), available));
  return body;
}

std::optional<Request> MakeTransfer(Request request, FuseAction action, uint64_t offset, uint32_t length) {
  // The kernel keeps to what INIT agreed; a block of the pool holds no more, so it is checked all the same.
  if (length > kMaxTransfer || offset > UINT64_MAX - length) return std::nullopt;
  request.action = action;
  request.offset = offset;
  request.length = length;
  return request;
}

// The loop device sends discards and `fallocate -p` alike as a punched hole, so that both must read as
// zeroes.
std::optional<Request> MakeAllocation(Request request, const fuse_fallocate_in& body) {
  if (body.offset > UINT64_MAX - body.length) return std::nullopt;
  request.offset = body.offset;
  request.length = body.length;
  switch (body.mode) {
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
      request.action = FuseAction::kDiscard;
      break;
    case FALLOC_FL_ZERO_RANGE:
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
      request.action = FuseAction::kWriteZeroes;
      break;
    default:
      request.action = FuseAction::kRefuse;
  }
  return request;
}

FuseAction SimpleAction(uint32_t opcode) {
  switch (opcode) {
    case FUSE_FSYNC:
      return FuseAction::kFlush;
    case FUSE_GETATTR:
      return FuseAction::kAttributes;
    case FUSE_OPEN:
      return FuseAction::kOpen;
    case FUSE_STATFS:
      return FuseAction::kFileSystem;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_DESTROY:
    case FUSE_ACCESS:
      return FuseAction::kAcknowledge;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:  // the request it speaks of is answered in its own time
      return FuseAction::kIgnore;
    default:
      return FuseAction::kUnsupported;
  }
}

}  // namespace

std::optional<Request> ParseRequest(const char* head, size_t size) {
  fuse_in_header header;
  if (size < sizeof(header)) return std::nullopt;
  std::memcpy(&header, head, sizeof(header));
  if (header.len != size) return std::nullopt;
  Request request{.unique = header.unique};
  switch (header.opcode) {
    case FUSE_READ: {
      if (size < sizeof(header) + sizeof(fuse_read_in)) return std::nullopt;
      const auto body = ReadBody<fuse_read_in>(head, size);
      return MakeTransfer(request, FuseAction::kRead, body.offset, body.size);
    }
    case FUSE_WRITE: {
      const auto body = ReadBody<fuse_write_in>(head, size);
      if (size != kHeadSize + body.size) return std::nullopt;
      return MakeTransfer(request, FuseAction::kWrite, body.offset, body.size);
    }
    case FUSE_SETATTR:
      // The size is the LUN's, and nothing else is kept: a change of the times has the kernel take the size
      // anew.
      if (size < sizeof(header) + sizeof(fuse_setattr_in)) return std::nullopt;
      if ((ReadBody<fuse_setattr_in>(head, size).valid & FATTR_SIZE) == 0)
        request.action = FuseAction::kAttributes;
      return request;
    case FUSE_FALLOCATE:
      if (size < sizeof(header) + sizeof(fuse_fallocate_in)) return std::nullopt;
      return MakeAllocation(request, ReadBody<fuse_fallocate_in>(head, size));
    default:
      request.action = SimpleAction(header.opcode);
      return request;
  }
}

std::optional<InitAnswer> AnswerInit(const char* data, size_t size) {
  fuse_in_header header;
  fuse_init_in init{};
  if (size < sizeof(header)) return std::nullopt;
  std::memcpy(&header, data, sizeof(header));
  std::memcpy(&init, data + sizeof(header), std::min(sizeof(init), size - sizeof(header)));
  if (header.opcode != FUSE_INIT || init.major != FUSE_KERNEL_VERSION || init.minor < 31) return std::nullopt;
  const uint64_t extended = (init.flags & FUSE_INIT_EXT) != 0 ? uint64_t{init.flags2} << 32 : 0;

  InitAnswer answer{};
  answer.can_resend = (extended & kHasResend) != 0;
  fuse_init_out& out = answer.packet.body;
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<uint32_t>(init.minor, FUSE_KERNEL_MINOR_VERSION);
  // FUSE_ASYNC_DIO: without it the loop device's requests come one at a time.
  out.flags =
      init.flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_INIT_EXT);
  out.flags2 = static_cast<uint32_t>((extended & kHasResend) >> 32);
  out.max_write = kMaxTransfer;
  out.max_pages = kMaxTransfer / 4096;
  out.max_background = 64;  // requests under way at once; more gain nothing
  out.congestion_threshold = 48;
  answer.packet.header = {.len = sizeof(answer.packet), .error = 0, .unique = header.unique};
  return answer;
}

fuse_attr_out FileAttributes(uint64_t size_bytes) {
  fuse_attr_out out{};
  // Valid for ever: the size changes only by GrowLoop, which has the kernel ask again. A kernel that asked by
  // itself would make `losetup` and udev wait for the target when they only want to read the device's tag.
  out.attr_valid = UINT32_MAX;
  out.attr.ino = FUSE_ROOT_ID;
  out.attr.mode = S_IFREG | 0600;
  out.attr.nlink = 1;
  out.attr.size = size_bytes;
  out.attr.blocks = size_bytes / 512;
  out.attr.blksize = 4096;
  return out;
}

fuse_statfs_out FileSystem(uint64_t size_bytes) {
  fuse_statfs_out out{};
  out.st.bsize = out.st.frsize = 4096;
  out.st.blocks = size_bytes / 4096;
  out.st.namelen = 255;
  return out;
}

}  // namespace lunkeeper::fuse
