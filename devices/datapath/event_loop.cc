// One round of the loop (RunOnce), in this order:
//
//   1. wait      epoll over the inbox, each volume's FUSE descriptor and each Lun's socket
//   2. read      FUSE requests are submitted to their Luns; sockets are received from, which answers requests
//   3. feed      volumes that had found no memory try again, since answers have freed some; and volumes whose
//                limits let them take requests again
//   4. send      each Lun that was given requests sends them together, in one system call
//   5. timers    deadlines of Luns, and the heartbeat, twice a second at least
//
// So requests that arrive together leave together: that is most of what batching gains here.
//
// The worker's main thread talks to the loop through two stacks without locks (inbox and finished). Memory is
// freed by the main thread only: the loop returns each command when it is done with it.
//
// Killed at any line: requests that were read and not answered are sent again by the kernel to the next
// worker (FUSE_NOTIFY_RESEND); a write may then be done twice, with the same data, before anything after it
// is sent.

#include "devices/datapath/event_loop.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/event_fd.h"
#include "devices/datapath/crash_marks.h"
#include "devices/datapath/hang_watch.h"

namespace lunkeeper {
namespace {

// About what it costs to go to sleep and to be woken up again, on both sides of a loopback connection.
constexpr auto kLongestPoll = std::chrono::microseconds(100);
// The supervisor looks once a second, and takes ten looks without a heartbeat for a hang.
constexpr auto kHeartbeatEvery = std::chrono::milliseconds(500);
constexpr size_t kSpinAtMost = 2;  // requests in flight; beyond, the processor is better left to others
constexpr uint64_t kInbox = UINT64_MAX;
// Made before any loop runs, since a loop does not allocate.
const std::string kConnectionEnded =
    "the kernel has ended its FUSE connection: somebody aborted it, or fs.fuse.max_request_timeout did";

// What an epoll event belongs to: a member's place, and which of its two descriptors.
constexpr uint64_t kLunBit = 1;

// Commands are pushed and taken as a stack, since that needs no lock.
void PushCommand(std::atomic<LoopCommand*>& stack, LoopCommand* command) {
  command->next = stack.load(std::memory_order_relaxed);
  while (!stack.compare_exchange_weak(command->next, command, std::memory_order_release)) {
  }
}

}  // namespace

void AdaptivePolling::OnWorkFound(Clock::time_point now) {
  const bool worth_it = now - last_ < kLongestPoll;
  last_ = now;
  if (worth_it) {
    limit_ = std::min<Clock::duration>(kLongestPoll, limit_ * 2 + std::chrono::microseconds(10));
  } else {
    limit_ /= 2;
  }
}

EventLoop::EventLoop(size_t pool_bytes, std::atomic<uint64_t>* heartbeat, int answers)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      inbox_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      heartbeat_(heartbeat),
      answers_(answers),
      resources_(pool_bytes),
      next_timer_(Clock::now()) {
  members_.reserve(kMaxVolumes);
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kInbox}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, inbox_event_.get(), &event);
  thread_ = std::thread(&EventLoop::Run, this);
}

EventLoop::~EventLoop() {
  LoopCommand stop;
  stop.kind = LoopCommand::Kind::kStop;
  PostCommand(&stop);
  thread_.join();
}

void EventLoop::PostCommand(LoopCommand* command) {
  command->loop = this;
  PushCommand(inbox_, command);
  RaiseEvent(inbox_event_.get());
}

void EventLoop::Run() {
  // Touched once, so that the pages are present: a fault later would have to wait for memory.
  volatile char stack[64 << 10];
  for (size_t i = 0; i < sizeof(stack); i += 4096) stack[i] = 0;
  const CrashStack crash_stack;
  const HangWatch hang_watch(*heartbeat_);
  // Nobody is pushed off a processor when something comes for this thread: by its turn more has come, and
  // goes out, or is answered, together.
  const sched_param parameters{};
  ::sched_setscheduler(0, SCHED_BATCH, &parameters);  // 0: this thread
  while (!stopping_) RunOnce();
}

void EventLoop::RunOnce() {
  // Polling pays where one request waits for one answer. With many in flight the next event is never far, and
  // sleeping lets more of them come together.
  const bool low_depth = resources_.in_flight() <= kSpinAtMost;
  const Clock::time_point before = Clock::now();
  const bool spin = low_depth && polling_.ShouldPoll(before);
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, spin ? 0 : SleepMilliseconds(before));
  heartbeat_->fetch_add(1, std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  if (count > 0) polling_.OnWorkFound(now);
  for (int i = 0; i < count; ++i) OnEvent(events[i].data.u64, events[i].events);
  if (starved_ > 0) FeedStarved();
  if (now >= next_limited_) FeedLimited(now);
  SendSubmitted();
  if (now >= next_timer_) RunTimers(now);
}

int EventLoop::SleepMilliseconds(Clock::time_point now) const {
  const auto wait = std::clamp<Clock::duration>(std::min(next_timer_, next_limited_) - now,
                                                Clock::duration::zero(), kHeartbeatEvery);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
}

void EventLoop::OnEvent(uint64_t data, uint32_t events) {
  if (data == kInbox) return TakeCommands();
  // A member removed earlier in this round may still have events in what epoll returned.
  Member& member = members_[data >> 1];
  if (member.channel == nullptr) return;
  const WorkOnVolume work(member.channel->slot());
  if ((data & kLunBit) == 0) return (events & EPOLLERR) != 0 ? LoseFuse(member) : OnFuse(member);
  member.channel->lun().OnReady();
  AfterLun(member);
}

// Every I/O of the device fails from now on, and for good: that has to show. epoll tells it also of a
// descriptor that is not read now, such as of a volume whose target is away, again and again.
void EventLoop::LoseFuse(Member& member) {
  if (member.channel->fuse_fd() < 0) return;
  WatchFuse(member, EPOLL_CTL_DEL, 0);
  SetStarved(member, false);
  member.limited = false;
  member.channel->lun().Fail(kConnectionEnded);
  member.submitted = true;
}

void EventLoop::OnFuse(Member& member) {
  if (member.channel->fuse_fd() < 0) return;
  const auto progress = member.channel->ReadRequests();
  member.submitted = true;
  const bool starved = progress == FuseChannel::Progress::kStarved;
  const bool limited = progress == FuseChannel::Progress::kLimited;
  const bool waits = starved || limited;
  if (progress == FuseChannel::Progress::kGone) return LoseFuse(member);
  // Level-triggered: a descriptor with requests that are not read would wake the loop up again and again.
  if (waits != (member.starved || member.limited))
    WatchFuse(member, EPOLL_CTL_MOD, waits ? 0U : uint32_t{EPOLLIN});
  SetStarved(member, starved);
  member.limited = limited;
  if (limited) next_limited_ = std::min(next_limited_, member.channel->resume_at());
}

void EventLoop::SetStarved(Member& member, bool starved) {
  if (starved == member.starved) return;
  member.starved = starved;
  if (starved) {
    ++starved_;
  } else {
    --starved_;
  }
}

// In turn, behind the last one that got something, so that each gets its share of what others have freed.
void EventLoop::FeedStarved() {
  if (!resources_.CanTakeAny()) return;
  const size_t first = first_fed_;
  for (size_t i = 0; i < members_.size(); ++i) {
    const size_t at = (first + i) % members_.size();
    if (!members_[at].starved) continue;
    const size_t before = resources_.in_flight();
    const WorkOnVolume work(members_[at].channel->slot());
    OnFuse(members_[at]);
    if (resources_.in_flight() > before) first_fed_ = at + 1;
  }
}

// At the latest with each heartbeat, since limits change, and a volume that fails has none.
void EventLoop::FeedLimited(Clock::time_point now) {
  next_limited_ = Clock::time_point::max();
  bool any = false;
  for (Member& member : members_) {
    if (!member.limited) continue;
    const WorkOnVolume work(member.channel->slot());
    OnFuse(member);
    any = any || member.limited;
  }
  if (any) next_limited_ = std::min(next_limited_, now + kHeartbeatEvery);
}

void EventLoop::SendSubmitted() {
  for (Member& member : members_) {
    if (!std::exchange(member.submitted, false) || member.channel == nullptr) continue;
    const WorkOnVolume work(member.channel->slot());
    member.channel->lun().SendQueued();
    AfterLun(member);
  }
}

// After every call of a Lun that may change its socket or its state.
void EventLoop::AfterLun(Member& member) {
  FuseChannel& channel = *member.channel;
  ArmSocket(member);
  next_timer_ = std::min(next_timer_, channel.lun().NextDeadline());
  // Requests are read only once it is known what the LUN is: an attribute request needs its size.
  if (!channel.open() && channel.settled() && member.removal == nullptr) {
    channel.Open();
    WatchFuse(member, EPOLL_CTL_ADD, EPOLLIN);
    channel.slot().open = true;
    RaiseEvent(answers_);
  }
  const LunHealth health = channel.slot().lun.health;
  if (member.limited && health == LunHealth::kFailed)
    next_limited_ = {};  // at once: every request gets its error
  if (member.removal != nullptr && (health == LunHealth::kClosed || health == LunHealth::kFailed)) {
    WorkOnVolume::End();  // from the answer on, the slot may be another volume's
    FinishCommand(std::exchange(member.removal, nullptr), 0);
    member = Member{};
  }
}

void EventLoop::ArmSocket(Member& member) {
  const Lun::Interest wanted = member.channel->lun().interest();
  if (wanted.fd == member.armed.fd && wanted.events == member.armed.events) return;
  if (wanted.fd >= 0) {
    epoll_event event = {.events = wanted.events, .data = {.u64 = IndexOf(member) << 1 | kLunBit}};
    const int operation = wanted.fd == member.armed.fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    ::epoll_ctl(epoll_.get(), operation, wanted.fd, &event);
  }  // a closed socket has left the set by itself
  member.armed = wanted;
}

void EventLoop::WatchFuse(Member& member, int operation, uint32_t events) {
  epoll_event event = {.events = events, .data = {.u64 = IndexOf(member) << 1}};
  ::epoll_ctl(epoll_.get(), operation, member.channel->fuse_fd(), &event);
}

void EventLoop::RunTimers(Clock::time_point now) {
  next_timer_ = now + kHeartbeatEvery;
  for (Member& member : members_) {
    if (member.channel == nullptr) continue;
    const WorkOnVolume work(member.channel->slot());
    if (member.channel->lun().NextDeadline() <= now) member.channel->lun().OnTimer(now);
    AfterLun(member);
  }
}

void EventLoop::TakeCommands() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(inbox_event_.get(), &count, sizeof(count));
  // The newest is on top of the stack: turn it over, since a kFail must not come before its kAdd.
  LoopCommand* in_order = nullptr;
  for (LoopCommand* command = inbox_.exchange(nullptr); command != nullptr;) {
    LoopCommand* next = std::exchange(command->next, in_order);
    in_order = std::exchange(command, next);
  }
  while (LoopCommand* command = in_order) {
    in_order = command->next;
    ObeyCommand(command);
  }
}

void EventLoop::ObeyCommand(LoopCommand* command) {
  if (command->kind == LoopCommand::Kind::kStop) {
    stopping_ = true;  // the command is the destructor's own
    return;
  }
  if (command->kind == LoopCommand::Kind::kAdd) return AddChannel(command);
  Member* member = FindMember(command->channel);
  // A detach that was given up is repeated: its answer has to wait for the logout too, and nobody waits for
  // the first one's any more.
  if (member != nullptr && member->removal != nullptr && command->kind == LoopCommand::Kind::kRemove)
    std::swap(member->removal->tag, command->tag);
  if (member == nullptr || member->removal != nullptr) return FinishCommand(command, ENODEV);
  const WorkOnVolume work(member->channel->slot());
  switch (command->kind) {
    case LoopCommand::Kind::kRemove:
      RemoveChannel(*member, command);
      break;
    case LoopCommand::Kind::kRefresh:
      command->op = LunOp::kReadCapacity;
      command->done = &EventLoop::OnRefreshed;
      member->channel->lun().Submit(command);
      member->channel->lun().SendQueued();
      break;
    case LoopCommand::Kind::kFail:
      member->channel->lun().Fail(command->reason);
      FinishCommand(command, 0);
      break;
    default:
      break;
  }
  AfterLun(*member);
}

EventLoop::Member* EventLoop::FindMember(const FuseChannel* channel) {
  for (Member& member : members_) {
    if (member.channel == channel) return &member;
  }
  return nullptr;
}

void EventLoop::AddChannel(LoopCommand* command) {
  Member* place = FindMember(nullptr);
  if (place == nullptr) place = &members_.emplace_back();
  place->channel = command->channel;
  const WorkOnVolume work(place->channel->slot());
  FinishCommand(command, 0);
  AfterLun(*place);
}

void EventLoop::RemoveChannel(Member& member, LoopCommand* command) {
  member.channel->lun().Close();  // answers what is pending, so FUSE comes after it
  SetStarved(member, false);
  member.limited = false;
  WatchFuse(member, EPOLL_CTL_DEL, 0);  // the supervisor has the descriptor too, so closing it is not enough
  member.channel->CloseFuse();
  member.removal = command;
}

void EventLoop::OnRefreshed(LunRequest* request) {
  auto* command = static_cast<LoopCommand*>(request);
  command->loop->FinishCommand(command, request->error);
}

// The last use of the command: the main thread deletes it, and its channel after a removal. The slot is
// answered after the push: with the answer in hand the supervisor may give it to another volume.
void EventLoop::FinishCommand(LoopCommand* command, int error) {
  VolumeSlot* const slot = command->slot;
  const uint64_t tag = command->tag;
  command->error = error;
  PushCommand(finished_, command);
  if (tag == 0) return;
  slot->AnswerCommand(tag, error);
  RaiseEvent(answers_);
}

}  // namespace lunkeeper
