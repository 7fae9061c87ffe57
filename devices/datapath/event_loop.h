#pragma once
// A thread that drives volumes: each volume's FUSE channel and Lun belong to it alone, so that a request goes
// from the kernel to the network and back without a lock or a hand-over.
//
// Thread safety: Post may be called by one other thread; everything else happens on the loop's own thread,
// which never allocates, frees, logs or locks: write-back of dirty pages may be waiting for it, and for
// memory. Ownership: the loop is joined by its destructor. Channels and commands belong to the poster; a
// command is its loop's from Post until TakeFinished returns it, and so is the channel from kAdd until
// kRemove has been returned.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "devices/datapath/fuse_channel.h"

namespace lunkeeper {

struct LoopCommand : LunRequest {
  enum class Kind {
    kAdd,      // a channel whose Lun was started; finished at once
    kRemove,   // logs out
    kRefresh,  // reads the LUN's capacity
    kFail,     // fails the Lun for good
    kStop,
  };
  Kind kind = Kind::kAdd;
  FuseChannel* channel = nullptr;  // gone once it has been removed, as by a kRemove before this command
  VolumeSlot* slot = nullptr;      // the channel's
  uint64_t tag = 0;                // answered in the slot when it is done; 0: no answer
  std::string reason;              // kFail
  class EventLoop* loop = nullptr;
  LoopCommand* next = nullptr;
};

// How long to look for work before going to sleep: as long as work keeps coming within 100 µs, since then
// sleeping and waking up costs more than the wait.
class AdaptivePolling {
 public:
  using Clock = std::chrono::steady_clock;
  bool ShouldPoll(Clock::time_point now) const { return now - last_ < limit_; }
  void OnWorkFound(Clock::time_point now);

 private:
  Clock::time_point last_;
  Clock::duration limit_{};
};

class EventLoop {
 public:
  // `heartbeat` rises at least once a second while the loop is well. `answers` is an eventfd, signalled when
  // a slot's `open` or `answered` changed. Both outlive the loop.
  EventLoop(size_t pool_bytes, std::atomic<uint64_t>* heartbeat, int answers);
  ~EventLoop();

  void PostCommand(LoopCommand* command);
  // Finished commands, linked by `next`.
  LoopCommand* TakeFinished() { return finished_.exchange(nullptr); }
  IoResources& resources() { return resources_; }

 private:
  using Clock = Lun::Clock;
  // A channel and what the loop knows of it.
  struct Member {
    FuseChannel* channel = nullptr;  // null: a free place
    Lun::Interest armed{-1, 0};
    bool starved = false;            // not reading its FUSE descriptor, for want of memory
    bool limited = false;            // nor this one: until its limits let it
    bool submitted = false;          // its Lun waits for SendQueued
    LoopCommand* removal = nullptr;  // logging out
  };

  void Run();
  void RunOnce();
  int SleepMilliseconds(Clock::time_point now) const;
  void OnEvent(uint64_t data, uint32_t events);
  void LoseFuse(Member& member);
  void OnFuse(Member& member);
  void AfterLun(Member& member);
  void ArmSocket(Member& member);
  void SendSubmitted();
  void RunTimers(Clock::time_point now);
  void SetStarved(Member& member, bool starved);
  void FeedStarved();
  void FeedLimited(Clock::time_point now);
  void TakeCommands();
  void ObeyCommand(LoopCommand* command);
  void AddChannel(LoopCommand* command);
  void RemoveChannel(Member& member, LoopCommand* command);
  void WatchFuse(Member& member, int operation, uint32_t events);
  static void OnRefreshed(LunRequest* request);
  void FinishCommand(LoopCommand* command, int error);
  uint64_t IndexOf(const Member& member) const { return static_cast<uint64_t>(&member - members_.data()); }
  Member* FindMember(const FuseChannel* channel);

  // Constant after construction.
  UniqueFd epoll_;
  UniqueFd inbox_event_;
  std::atomic<uint64_t>* const heartbeat_;
  const int answers_;

  std::atomic<LoopCommand*> inbox_{nullptr};
  std::atomic<LoopCommand*> finished_{nullptr};

  // The loop thread's own.
  IoResources resources_;
  std::vector<Member> members_;  // never grows beyond its capacity; a free place has no channel
  size_t starved_ = 0;           // members that are
  size_t first_fed_ = 0;         // whose turn it is
  Clock::time_point next_timer_;
  Clock::time_point next_limited_ = Clock::time_point::max();  // when to look at members that are
  AdaptivePolling polling_;
  bool stopping_ = false;

  std::thread thread_;  // last: runs on all of the above
};

}  // namespace lunkeeper
