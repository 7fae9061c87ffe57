#pragma once
// One volume of the user data path: the kernel's requests come in on a FUSE descriptor, go out as requests to
// a Lun, and are answered when it completes them.
//
// Thread safety: none; after Start it belongs to one EventLoop, which drives it, and shares its IoResources
// with the loop's other channels. Memory: nothing is allocated after construction. Failure: a Lun that failed
// for good makes every request end in EIO; a FUSE connection that was aborted makes the channel `gone`, and
// its owner then fails the Lun.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "devices/datapath/buffer_pool.h"
#include "devices/datapath/fuse_wire.h"
#include "devices/datapath/rate_limiter.h"
#include "devices/datapath/shared_state.h"
#include "devices/iscsi/lun.h"

namespace lunkeeper {

class FuseChannel;

// What the volumes of one array have out of the reserve of one loop: they fall silent together, and for a
// while nobody knows it. The loop's own while channels of it use it.
struct ReserveUse {
  size_t bytes = 0;
  size_t requests = 0;
};

// One request of the kernel's on its way.
struct IoRequest : LunRequest {
  FuseChannel* channel = nullptr;
  uint64_t unique = 0;
  fuse_out_header reply{};  // before data that need not come through here
  char* block = nullptr;    // of the pool; null where no data move
  size_t charge = 0;        // what the block costs the channel's quota
  bool reserved = false;    // taken on out of the reserve
  IoRequest* next_free = nullptr;
};

// What the channels of one loop have in common: fixed, and present from the beginning.
class IoResources {
 public:
  explicit IoResources(size_t pool_bytes);

  IoRequest* TakeRequest();
  void ReturnRequest(IoRequest* request);
  // Whether any request, however large, could be taken on now. Also sees to `staging`.
  bool CanTakeAny();
  // A block of the largest size which requests are read into; null after TakeStaging.
  char* staging() { return staging_; }
  char* TakeStaging();
  BufferPool& pool() { return pool_; }
  SplicePipe& splice_pipe() { return splice_pipe_; }
  size_t in_flight() const { return in_flight_; }
  size_t free_requests() const { return requests_.size() - in_flight_; }
  // What can be given out in whole blocks, but for a reserve. A channel takes of that one only while it has
  // nothing in flight, its target answers, and its array has taken less of it than is left.
  size_t shared_bytes() const { return std::max(pool_.whole_bytes(), reserve_bytes_) - reserve_bytes_; }
  // The same of requests, of which those without data need nothing else.
  size_t shared_requests() const { return std::max(free_requests(), reserve_requests_) - reserve_requests_; }
  // Few whole blocks are left: better to copy data than to keep a block for them that is larger.
  bool scarce() const { return pool_.whole_bytes() < pool_.size_bytes() / 4; }

 private:
  BufferPool pool_;
  SplicePipe splice_pipe_;
  std::vector<IoRequest> requests_;
  IoRequest* free_ = nullptr;
  char* staging_ = nullptr;
  size_t in_flight_ = 0;
  size_t reserve_bytes_ = 0;
  size_t reserve_requests_ = 0;
};

class FuseChannel {
 public:
  enum class Progress {
    kDrained,  // the kernel has no more for now
    kMore,     // it may have
    kStarved,  // no memory for another request, or the target is away: try again when something has happened
    kLimited,  // its limits let it take no more before resume_at()
    kGone,     // the connection was aborted
  };

  // `resend`: another process has read requests from `fuse` and died. `array`: of this loop's channels to it.
  FuseChannel(UniqueFd fuse, std::unique_ptr<Lun> lun, VolumeSlot* slot, bool resend, IoResources* resources,
              std::shared_ptr<ReserveUse> array);

  // The Lun has settled (it is ready, or failed): lets the kernel send again what a predecessor took along,
  // and from now on requests are read.
  void Open();
  bool open() const { return open_; }
  bool settled() const;

  // Reads a batch of requests and submits them; the caller then calls the Lun's SendQueued.
  Progress ReadRequests();
  Lun::Clock::time_point resume_at() const { return limiter_.ready_at(); }
  void CloseFuse() { fuse_.Reset(); }

  int fuse_fd() const { return fuse_.get(); }
  Lun& lun() { return *lun_; }
  VolumeSlot& slot() { return *slot_; }

 private:
  bool HasShare() const;
  bool MayTakeReserve() const;
  bool MayTake();
  bool IsLimited();
  void CountLimited(const fuse::Request& request);
  void DispatchRequest(const fuse::Request& request);
  void StartTransfer(const fuse::Request& request);
  void TakeBlock(IoRequest* io);
  void AskForDelivery(IoRequest* io);
  void SubmitPlain(const fuse::Request& request, LunOp op);
  IoRequest* NewRequest(const fuse::Request& request, LunOp op);
  void SendAnswer(uint64_t unique, int error, const void* data = nullptr, size_t size = 0);
  static void OnCompleted(LunRequest* request);
  void FinishRequest(IoRequest* io);

  // Constant after construction.
  UniqueFd fuse_;
  const std::unique_ptr<Lun> lun_;
  VolumeSlot* const slot_;
  IoResources* const resources_;
  const bool resend_;
  const std::shared_ptr<ReserveUse> array_;

  bool open_ = false;
  RateLimiter limiter_;
  size_t charged_bytes_ = 0;  // of the pool
  size_t in_flight_ = 0;      // requests
  bool reserves_ = false;     // what is read next is taken on out of the reserve
};

}  // namespace lunkeeper
