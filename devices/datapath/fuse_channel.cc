// The way of a request, all on the loop's thread:
//
//   read     readv() puts its head on the stack and its data into `staging`, a block of the largest size:
//            its own size shows only when it is read
//   submit   a small write is copied out of `staging` into a block of its size; a large one keeps the block
//            itself, cut down to its size, and another becomes `staging`. Where few whole blocks are left, a
//            large one is copied too, into what others have cut off
//   done     answered by writev(), or, for a large read, by the splice pipe on the way from the socket
//
// Back pressure: a channel that finds no memory reads nothing, and the kernel holds the requests. So the pool
// bounds everything, and nothing here can fail for want of memory.
//
// Limits work the same way: a channel whose limits are used up reads nothing for a while (rate_limiter.h). So
// the kernel holds what waits for them, a flush behind it too, and no time limit of a command begins.
//
// What a channel holds it holds until its target answers, which may take minutes, so none may hold so much
// that others of the loop find nothing (MayTake). What counts is whole blocks, since each read of a request
// needs one: a large write's block is charged whole, however little of it is kept.

#include "devices/datapath/fuse_channel.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail_point.h"

namespace lunkeeper {
namespace {

// Up to here data are copied out of the staging block; beyond, the block itself is kept, which costs the pool
// more room for a moment and saves the copy.
constexpr size_t kCopiedAtMost = size_t{64} << 10;
// Requests of one volume before the next one has its turn.
constexpr int kBatch = 64;
// FOPEN_PARALLEL_DIRECT_WRITES, which the headers of Debian's cross compiler lack. Kernels before 6.2 ignore
// it.
constexpr uint32_t kParallelDirectWrites = 1U << 6;

}  // namespace

// One request for each two of the smallest blocks: requests without data exist, and larger ones.
IoResources::IoResources(size_t pool_bytes)
    : pool_(pool_bytes), requests_(pool_.size_bytes() / BufferPool::kSmallestBlock / 2) {
  for (IoRequest& request : requests_) {
    request.next_free = free_;
    free_ = &request;
  }
  reserve_requests_ = requests_.size() / 8;
  // An eighth, which a very small pool has not to spare. Of one block alone nothing would be left.
  const size_t blocks = pool_.size_bytes() / BufferPool::kLargestBlock;
  const size_t reserved = blocks >= 8 ? std::max<size_t>(blocks / 8, 2) : blocks / 4;
  reserve_bytes_ = reserved * BufferPool::kLargestBlock;
}

IoRequest* IoResources::TakeRequest() {
  IoRequest* request = free_;
  free_ = request->next_free;
  ++in_flight_;
  return request;
}

void IoResources::ReturnRequest(IoRequest* request) {
  request->next_free = free_;
  free_ = request;
  --in_flight_;
}

bool IoResources::CanTakeAny() {
  if (staging_ == nullptr) staging_ = pool_.Allocate(BufferPool::kLargestBlock);
  return staging_ != nullptr && free_ != nullptr && pool_.whole_bytes() > 0;
}

char* IoResources::TakeStaging() { return std::exchange(staging_, nullptr); }

FuseChannel::FuseChannel(UniqueFd fuse, std::unique_ptr<Lun> lun, VolumeSlot* slot, bool resend,
                         IoResources* resources, std::shared_ptr<ReserveUse> array)
    : fuse_(std::move(fuse)),
      lun_(std::move(lun)),
      slot_(slot),
      resources_(resources),
      resend_(resend),
      array_(std::move(array)) {}

// Failed counts: the kernel's requests are then answered with EIO, at once, instead of waiting for ever.
bool FuseChannel::settled() const {
  const LunHealth health = slot_->lun.health;
  return health == LunHealth::kHealthy || health == LunHealth::kFailed;
}

void FuseChannel::Open() {
  if (resend_) {
    const fuse_out_header notify = {.len = sizeof(notify), .error = fuse::kNotifyResend, .unique = 0};
    // Fails only where the connection is gone, which the next read tells.
    [[maybe_unused]] const ssize_t written = ::write(fuse_.get(), &notify, sizeof(notify));
  }
  open_ = true;
}

// A volume takes more only while it holds less than is free, both of the requests and of the whole blocks
// outside the reserve, and takes nothing while its target is away. So each volume that gets stuck leaves at
// least half of what it found.
bool FuseChannel::HasShare() const {
  return charged_bytes_ < resources_->shared_bytes() && in_flight_ < resources_->shared_requests();
}

// The reserve is for volumes with nothing in flight, so that they go on, one request at a time; but not for a
// volume whose target is silent. When an array has just fallen silent all its volumes look well, so what
// holds for a volume outside the reserve holds for an array inside: it leaves at least half of what it found.
// A volume that has failed owes its callers errors, and keeps nothing.
bool FuseChannel::MayTakeReserve() const {
  if (in_flight_ > 0) return false;
  if (slot_->lun.health == LunHealth::kFailed) return true;
  if (slot_->lun.stalled) return false;
  const size_t whole = resources_->pool().whole_bytes(), requests = resources_->free_requests();
  // The last ones are for an array that has nothing: small requests count as little, and break a whole block.
  const bool is_last = whole <= BufferPool::kLargestBlock || requests == 1;
  return array_->bytes < whole && array_->requests < requests && (array_->requests == 0 || !is_last);
}

bool FuseChannel::MayTake() {
  if (slot_->lun.health == LunHealth::kReconnecting || !resources_->CanTakeAny()) return false;
  reserves_ = !HasShare();
  return !reserves_ || MayTakeReserve();
}

// A volume that has failed owes its callers an error each, at once.
bool FuseChannel::IsLimited() {
  return limiter_.FollowLimits(slot_->limits) && slot_->lun.health != LunHealth::kFailed;
}

// Flushes and questions are free, but wait their turn. Zeroes and discards move no data.
void FuseChannel::CountLimited(const fuse::Request& request) {
  using fuse::FuseAction;
  const bool moves = request.action == FuseAction::kRead || request.action == FuseAction::kWrite;
  if (moves || request.action == FuseAction::kDiscard || request.action == FuseAction::kWriteZeroes)
    limiter_.CountRequest(moves ? request.length : 0, Lun::Clock::now());
}

FuseChannel::Progress FuseChannel::ReadRequests() {
  const bool limited = IsLimited();
  for (int i = 0; i < kBatch; ++i) {
    if (limited && limiter_.ready_at() > Lun::Clock::now()) return Progress::kLimited;
    // Before each read: a request that was read has to be answered, so there must be room for it.
    if (!MayTake()) return Progress::kStarved;
    char head[fuse::kHeadSize];
    const iovec parts[2] = {{head, sizeof(head)}, {resources_->staging(), BufferPool::kLargestBlock}};
    const ssize_t size = ::readv(fuse_.get(), parts, 2);
    if (size < 0) {
      if (errno == EAGAIN) return Progress::kDrained;
      if (errno == EINTR || errno == ENOENT) continue;  // ENOENT: the request was taken back meanwhile
      // Any other error is of one request, which the kernel has answered.
      return errno == ENODEV || errno == ECONNABORTED ? Progress::kGone : Progress::kDrained;
    }
    const auto request = fuse::ParseRequest(head, static_cast<size_t>(size));
    if (limited && request) CountLimited(*request);
    if (request) DispatchRequest(*request);
  }
  return Progress::kMore;
}

void FuseChannel::DispatchRequest(const fuse::Request& request) {
  FAIL_POINT_AT("worker.request.taken", request.offset);
  using fuse::FuseAction;
  switch (request.action) {
    case FuseAction::kRead:
    case FuseAction::kWrite:
      return StartTransfer(request);
    case FuseAction::kFlush:
      return SubmitPlain(request, LunOp::kFlush);
    case FuseAction::kDiscard:
      // A hole must read as zeroes. Where the LUN does not promise that the kernel writes them itself, if it
      // needs them; zeroing whole devices for the sake of a discard would take hours.
      if (!slot_->lun.unmap_zeroes) return SendAnswer(request.unique, EOPNOTSUPP);
      return SubmitPlain(request, LunOp::kDiscard);
    case FuseAction::kWriteZeroes:
      return SubmitPlain(request, LunOp::kWriteZeroes);
    case FuseAction::kAttributes: {
      const fuse_attr_out out = fuse::FileAttributes(slot_->lun.size_bytes);
      return SendAnswer(request.unique, 0, &out, sizeof(out));
    }
    case FuseAction::kOpen: {
      // No page cache for this file: the loop device above it has one, and two would disagree.
      const fuse_open_out out = {
          .fh = 0, .open_flags = FOPEN_DIRECT_IO | kParallelDirectWrites, .padding = 0};
      return SendAnswer(request.unique, 0, &out, sizeof(out));
    }
    case FuseAction::kFileSystem: {
      const fuse_statfs_out out = fuse::FileSystem(slot_->lun.size_bytes);
      return SendAnswer(request.unique, 0, &out, sizeof(out));
    }
    case FuseAction::kAcknowledge:
      return SendAnswer(request.unique, 0);
    case FuseAction::kIgnore:
      return;
    case FuseAction::kUnsupported:
      return SendAnswer(request.unique, ENOSYS);
    case FuseAction::kRefuse:
      return SendAnswer(request.unique, EOPNOTSUPP);
  }
}

// There is one: MayTake has looked.
IoRequest* FuseChannel::NewRequest(const fuse::Request& request, LunOp op) {
  IoRequest* io = resources_->TakeRequest();
  *io = IoRequest{};
  io->op = op;
  io->offset = request.offset;
  io->length = request.length;
  io->done = &FuseChannel::OnCompleted;
  io->channel = this;
  io->unique = request.unique;
  io->reserved = reserves_;
  array_->requests += io->reserved ? 1 : 0;
  ++in_flight_;
  return io;
}

void FuseChannel::SubmitPlain(const fuse::Request& request, LunOp op) {
  lun_->Submit(NewRequest(request, op));
}

// Memory for it there is: MayTake saw to that.
void FuseChannel::StartTransfer(const fuse::Request& request) {
  const bool write = request.action == fuse::FuseAction::kWrite;
  if (request.length == 0) {
    const fuse_write_out nothing = {};
    return SendAnswer(request.unique, 0, &nothing, write ? sizeof(nothing) : 0);
  }
  IoRequest* io = NewRequest(request, write ? LunOp::kWrite : LunOp::kRead);
  TakeBlock(io);
  io->data = io->block;
  if (!write && resources_->splice_pipe().TakesSize(request.length)) AskForDelivery(io);
  charged_bytes_ += io->charge;
  array_->bytes += io->reserved ? io->charge : 0;
  lun_->Submit(io);
}

void FuseChannel::TakeBlock(IoRequest* io) {
  const bool write = io->op == LunOp::kWrite;
  BufferPool& pool = resources_->pool();
  io->charge = BufferPool::BlockSize(io->length);
  if (!write || io->length <= kCopiedAtMost) {
    io->block = pool.Allocate(io->length);
  } else if (resources_->scarce()) {
    io->block = pool.AllocateFromPieces(io->length);
  }
  if (io->block == nullptr) {
    io->block = resources_->TakeStaging();
    pool.Shrink(io->block, io->length);
    io->charge = BufferPool::kLargestBlock;
  } else if (write) {
    std::memcpy(io->block, resources_->staging(), io->length);
  }
}

// The answer's data then go from the socket to the kernel without coming to the block.
void FuseChannel::AskForDelivery(IoRequest* io) {
  io->reply = {
      .len = static_cast<uint32_t>(sizeof(io->reply) + io->length), .error = 0, .unique = io->unique};
  io->delivery = {.splice_pipe = &resources_->splice_pipe(),
                  .preface = {&io->reply, sizeof(io->reply)},
                  .sink = fuse_.get()};
}

void FuseChannel::OnCompleted(LunRequest* request) {
  auto* io = static_cast<IoRequest*>(request);
  io->channel->FinishRequest(io);
}

void FuseChannel::FinishRequest(IoRequest* io) {
  // Answered first, freed after: the data are in the block.
  if (io->error == 0 && io->op == LunOp::kRead) {
    if (!io->delivery.done) SendAnswer(io->unique, 0, io->data, io->length);
  } else if (io->error == 0 && io->op == LunOp::kWrite) {
    const fuse_write_out out = {.size = static_cast<uint32_t>(io->length), .padding = 0};
    SendAnswer(io->unique, 0, &out, sizeof(out));
  } else {
    SendAnswer(io->unique, io->error);
  }
  // Requests without data (flush, discard) have no block.
  if (io->block != nullptr) {
    resources_->pool().Free(io->block);
    charged_bytes_ -= io->charge;
    array_->bytes -= io->reserved ? io->charge : 0;
  }
  array_->requests -= io->reserved ? 1 : 0;
  --in_flight_;
  resources_->ReturnRequest(io);
}

void FuseChannel::SendAnswer(uint64_t unique, int error, const void* data, size_t size) {
  const size_t length = sizeof(fuse_out_header) + (error == 0 ? size : 0);
  fuse_out_header header = {.len = static_cast<uint32_t>(length), .error = -error, .unique = unique};
  const iovec parts[2] = {{&header, sizeof(header)}, {const_cast<void*>(data), size}};
  // Fails where nobody waits any more (the connection was aborted): there is nothing else to do then.
  [[maybe_unused]] const ssize_t written = ::writev(fuse_.get(), parts, error == 0 && size > 0 ? 2 : 1);
}

}  // namespace lunkeeper
