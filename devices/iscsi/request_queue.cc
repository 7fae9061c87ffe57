// A request is at any time in one of three lists, or its caller's. active_ holds it from its first command to
// its answer, whether a command of it is in flight or waits (postponed): so its place in the order is never
// lost. A request that is longer than the LUN takes at once goes through active_ part by part, one command at
// a time.
//
// What happens after which outcome is in OnCommandDone; what the outcomes mean is in scsi.cc.

#include "devices/iscsi/request_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail_point.h"
#include "devices/cache_ids.h"

namespace lunkeeper::iscsi {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of a command that the LUN would not carry out and gave no reason to wait, such as a unit attention: each of
// these comes once, so this many can only be a LUN that is broken.
constexpr uint32_t kRetriesAtOnce = 100;

// Of a LUN that is not ready, where there is another portal: some four seconds (RetryDelay).
constexpr uint32_t kRetriesHere = 10;

// Of one that says that it is busy, where there is another portal: some nine seconds, in which it carries out
// nothing. One that has something in hand, such as a long flush, is busy with that, and a move would end it.
constexpr uint32_t kRetriesBusy = 15;
constexpr auto kStarved = seconds(5);

// Sessions that end with the same request as the oldest in flight. After the first few, requests are sent one
// at a time, which tells the one that breaks sessions from its neighbours that only wait; that one is given
// up after the others. Each portal has its turn as often.
constexpr uint32_t kLossesUntilAlone = 3;
constexpr uint32_t kMostLosses = 8;

// For so long after an error that lasted, others are believed at once: a bad medium has more than one.
constexpr auto kBelief = seconds(60);

bool Modifies(LunOp op) { return op == LunOp::kWrite || op == LunOp::kDiscard || op == LunOp::kWriteZeroes; }

// A flush has no length that counts, and reading the capacity none at all.
bool HasLength(LunOp op) { return op == LunOp::kRead || Modifies(op); }

// 10, 20, 40 … 1000 ms.
milliseconds RetryDelay(uint32_t retries) {
  return milliseconds(std::min(10u << std::min(retries, 7u), 1000u));
}

}  // namespace

void RequestQueue::Submit(LunRequest* request) {
  request->error = 0;
  request->internal = {};
  request->internal.submitted = Clock::now();
  request->delivery.done = false;
  queued_.PushBack(request);
}

void RequestQueue::RefuseRequest(LunRequest* request, int error) {
  request->internal = {};
  request->delivery.done = false;
  request->error = error;
  CountError(*request, error);
  answered_.PushBack(request);
}

void RequestQueue::StartRequests(Clock::time_point now) {
  if (postponed_ > 0 && now >= due_) StartPostponed(now);
  while (!queued_.empty()) {
    LunRequest* request = queued_.front();
    const int refusal = RefusalOf(*request);
    const bool empty = request->length == 0 && HasLength(request->op);
    if (refusal != 0 || empty) {
      RefuseRequest(queued_.PopFront(), refusal);  // an empty one: error 0, there is nothing to do
      continue;
    }
    if (alone_left_ > 0 && !active_.empty()) return;
    Task* task = session_->NewTask();
    if (task == nullptr) return;  // the next answer makes room, and StartRequests is called again
    active_.PushBack(queued_.PopFront());
    StartCommand(request, task, now);
  }
}

// Those whose time has come, in the order of submission; due_ then says when the next one's is.
void RequestQueue::StartPostponed(Clock::time_point now) {
  due_ = Clock::time_point::max();
  for (LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    if (at->internal.in_flight) continue;
    Task* task = at->internal.at <= now ? session_->NewTask() : nullptr;
    if (task == nullptr) {
      due_ = std::min(due_, at->internal.at);
      continue;
    }
    --postponed_;
    StartCommand(at, task, now);
  }
}

// 0, or the errno of a request the LUN need not be asked about.
int RequestQueue::RefusalOf(const LunRequest& request) const {
  if (!HasLength(request.op)) return 0;
  // Written so that offset + length cannot overflow.
  const uint64_t size = facts_.size_bytes();
  if (request.offset > size || request.length > size - request.offset) return EINVAL;
  if (request.offset % facts_.block_size != 0 || request.length % facts_.block_size != 0) return EINVAL;
  if (Modifies(request.op) && (options_.read_only || facts_.write_protected)) return EROFS;
  if (request.op == LunOp::kDiscard && !facts_.can_unmap()) return EOPNOTSUPP;
  if (request.op == LunOp::kWriteZeroes && !state_->write_same) return EOPNOTSUPP;
  return 0;
}

void RequestQueue::StartCommand(LunRequest* request, Task* task, Clock::time_point now) {
  auto& state = request->internal;
  if (request->op == LunOp::kReadCapacity) {
    BuildQuestion(Question::kCapacity, capacity_answer_.data(), *task);
  } else if (state.syncing) {
    BuildFlush(*task);
  } else {
    state.span = CommandLength(*request, facts_);
    BuildCommand(*request, facts_, state.span, *task);
  }
  // Writes that are acknowledged from here on are not covered: the target may carry them out after the flush.
  if (request->op == LunOp::kFlush) state.covers = state_->cached_writes;
  if (request->op == LunOp::kFlush && CanLose() && !facts_.write_through()) state_->flush_open = true;
  state.in_flight = true;
  state.at = now;
  task->owner = request;
  session_->StartTask(task);
}

void RequestQueue::OnCommandDone(LunRequest* request, const Task& task, Clock::time_point now) {
  auto& state = request->internal;
  state.in_flight = false;
  const CommandOutcome outcome = EvaluateCommand(task, state.syncing ? LunOp::kFlush : request->op);
  if (TellsOfLoss(task)) NoteLostWrite();
  switch (outcome.next) {
    case NextStep::kDone:
      return OnPartDone(request, task, now);
    case NextStep::kAgain:
      if (++state.retries > kRetriesAtOnce) return FinishRequest(request, EIO, now);
      return PostponeUntil(request, now);
    case NextStep::kLater:
      return IsStarved(*request, now) ? TryElsewhere(request, now) : RetryLater(request, now);
    case NextStep::kNotReady:
      if (has_choice() && state.retries >= kRetriesHere) return TryElsewhere(request, now);
      return RetryLater(request, now);
    case NextStep::kElsewhere:
      return has_choice() ? TryElsewhere(request, now) : RetryLater(request, now);
    case NextStep::kFailed:
      // Some targets announce WRITE SAME and refuse it: the kernel then writes zeroes itself, for good.
      if (outcome.error == EOPNOTSUPP && request->op == LunOp::kWriteZeroes) state_->write_same = false;
      return FinishRequest(request, outcome.error, now);
    case NextStep::kBroken:
      return IsDoubted(*request, now) ? PostponeUntil(request, now) : FinishRequest(request, EIO, now);
  }
}

bool RequestQueue::IsStarved(const LunRequest& request, Clock::time_point now) const {
  return has_choice() && request.internal.retries >= kRetriesBusy && now - served_ >= kStarved &&
         !has_in_flight();
}

void RequestQueue::RetryLater(LunRequest* request, Clock::time_point now) {
  auto& state = request->internal;
  // About as long as a target may be away altogether, since the delay grows to a second.
  if (++state.retries > kRetriesAtOnce + options_.replacement_timeout / seconds(1))
    return FinishRequest(request, EIO, now);
  PostponeUntil(request, now + RetryDelay(state.retries - 1));
}

// Nothing was carried out, so unlike an error of the medium this may be asked again of any array. Mostly the
// login at a portal already shows that the LUN is not served there, and then it is the Lun that waits; the
// limit is for one that says so of commands only.
void RequestQueue::TryElsewhere(LunRequest* request, Clock::time_point now) {
  auto& since = request->internal.refused_since;
  if (since == Clock::time_point()) since = now;
  if (now - since >= options_.replacement_timeout) return FinishRequest(request, EIO, now);
  doubt_ = "the LUN is not served at this portal: another one is asked";
  refused_ = true;
  PostponeUntil(request, now);
}

bool RequestQueue::CanLose() const { return std::strcmp(facts_.boot_id, kNothingCached) != 0; }

// With one portal the same target would say the same again. Where a page cache is behind it, an error is also
// what Linux says of writes that were answered before: once, and the same flush would succeed the second
// time.
bool RequestQueue::IsDoubted(LunRequest& request, Clock::time_point now) {
  if (CanLose() || !has_choice() || now < believed_until_) return false;
  auto& state = request.internal;
  if (state.doubted_since == Clock::time_point()) state.doubted_since = now;
  state.doubted_to = std::max(state.doubted_to, state.position + state.span);
  const bool doubted = now - state.doubted_since < options_.doubt_timeout;
  if (!doubted) believed_until_ = now + kBelief;
  if (doubted) doubt_ = "an error of the medium: another portal is asked";
  return doubted;
}

void RequestQueue::OnPartDone(LunRequest* request, const Task& task, Clock::time_point now) {
  auto& state = request->internal;
  served_ = now;
  refused_ = false;
  if (request->op == LunOp::kReadCapacity) return FinishRequest(request, TakeCapacity(task), now);
  if (request->op == LunOp::kFlush) return FinishDurably(request, now);
  if (state.syncing) return FinishRequest(request, 0, now);
  state.position += state.span;
  state.retries = 0;
  // Parts before the one that failed are done again in each session.
  if (state.position >= state.doubted_to) state.doubted_since = {};
  state.syncing = state.position >= request->length && NeedsSync(*request);
  if (state.position < request->length || state.syncing) return PostponeUntil(request, now);
  if (Modifies(request->op) && !facts_.write_cache) return FinishDurably(request, now);
  FinishRequest(request, 0, now);
}

// Of what promises that earlier writes last: a flush, and a write of a LUN without a cache, where nobody has
// to flush. The loss is forgotten last, so that a worker that dies here tells of it twice and not never.
void RequestQueue::FinishDurably(LunRequest* request, Clock::time_point now) {
  const bool lost = state_->lost_writes;
  FinishRequest(request, lost ? EIO : 0, now);
  if (lost) state_->lost_writes = false;
}

// Whether what it has done may be in a cache whose loss nobody would notice.
bool RequestQueue::NeedsSync(const LunRequest& request) const {
  const bool by_fua = request.op == LunOp::kWrite && facts_.takes_fua;
  return Modifies(request.op) && facts_.write_through() && !by_fua;
}

// The LUN's size never shrinks here: a smaller one is a matter for the next login, which fails the Lun.
int RequestQueue::TakeCapacity(const Task& task) {
  LunFacts grown = facts_;
  if (!TakeAnswer(Question::kCapacity, task, grown) || grown.block_size != facts_.block_size) return EIO;
  if (grown.blocks <= facts_.blocks) return 0;
  facts_.blocks = grown.blocks;
  state_->size_bytes = grown.size_bytes();
  return 0;
}

// Never at once, although it may be due now: the task is free only after its handler has returned.
void RequestQueue::PostponeUntil(LunRequest* request, Clock::time_point at) {
  request->internal.at = at;
  due_ = postponed_ == 0 ? at : std::min(due_, at);
  ++postponed_;
}

// Publishes in LunState a request that succeeded; before `done`, so that nothing acknowledged is ever
// forgotten: a process that dies between the two has counted a cached write too many, never too few.
void RequestQueue::CountSuccess(const LunRequest& request, Clock::time_point now) {
  const Clock::duration took = now - request.internal.submitted;
  switch (request.op) {
    case LunOp::kRead:
      Count(state_->reads);
      Count(state_->read_bytes, request.length);
      state_->read_latency.CountDuration(took);
      break;
    case LunOp::kWrite:
      Count(state_->writes);
      Count(state_->written_bytes, request.length);
      state_->write_latency.CountDuration(took);
      break;
    case LunOp::kFlush:
      Count(state_->flushes);
      state_->flush_latency.CountDuration(took);
      state_->flushed_writes = std::max<uint64_t>(state_->flushed_writes, request.internal.covers);
      break;
    default:
      break;
  }
  const bool cached = facts_.write_cache && !facts_.write_through();
  if (Modifies(request.op) && cached && !request.fua) ++state_->cached_writes;
}

// EOPNOTSUPP is a question answered, not an error of I/O.
void RequestQueue::CountError(const LunRequest& request, int error) {
  if (error == 0 || error == EOPNOTSUPP) return;
  if (Modifies(request.op) || request.op == LunOp::kFlush) Count(state_->failed_writes);
  Count(state_->errors);
}

void RequestQueue::FinishRequest(LunRequest* request, int error, Clock::time_point now) {
  active_.Remove(request);
  if (alone_left_ > 0) --alone_left_;
  if (error == 0) CountSuccess(*request, now);
  request->error = error;
  CountError(*request, error);
  if (hold_) return answered_.PushBack(request);
  if (request->op == LunOp::kWrite) FAIL_POINT("lun.write.answered");
  request->done(request);
  CloseFlushes();
}

// Only after `done`: for a worker that dies before it, the kernel asks the next one for the flush again.
void RequestQueue::CloseFlushes() {
  if (!state_->flush_open || flush_was_cut_ || !answered_.empty()) return;
  for (const LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    if (at->op == LunOp::kFlush && at->internal.in_flight) return;
  }
  state_->flush_open = false;
}

void RequestQueue::FinishAnswered() {
  // Not requests that `done` submits and that are refused at once: a caller that retries for ever must not
  // hang here.
  RequestList now;
  now.Prepend(answered_);
  while (!now.empty()) {
    LunRequest* request = now.PopFront();
    request->done(request);
  }
  CloseFlushes();
}

// The order stays: active_ is in the order of submission, and goes before what was never started.
bool RequestQueue::TakeBack() {
  const bool given_up = doubt_ == nullptr && CountLoss();  // else it is known which one ended it
  doubt_ = nullptr;
  for (LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    if (at->op == LunOp::kFlush && at->internal.in_flight && state_->flush_open) flush_was_cut_ = true;
    at->internal.in_flight = false;
    at->internal.position = 0;  // parts already done may have been lost with the storage host's cache
    at->internal.syncing = false;
    at->internal.retries = 0;
  }
  queued_.Prepend(active_);
  postponed_ = 0;
  return given_up;
}

LunRequest* RequestQueue::OldestInFlight() const {
  LunRequest* oldest = active_.front();
  while (oldest != nullptr && !oldest->internal.in_flight) oldest = oldest->internal.next;
  return oldest;
}

bool RequestQueue::WantsOtherPortal() const {
  const LunRequest* oldest = OldestInFlight();
  return doubt_ != nullptr || (oldest != nullptr && oldest->internal.losses > 0);
}

// A session has ended. Whether that was one too many for the oldest request in flight, which is then refused:
// there is something in it that this target cannot bear, and without an end to its repetition the volume
// would hang for ever. Its command may still be carried out, but not after one of the next session
// (iscsi_lun.h).
bool RequestQueue::CountLoss() {
  LunRequest* oldest = OldestInFlight();
  if (oldest == nullptr) return false;
  const uint32_t losses = ++oldest->internal.losses;
  // As long as it takes to try each request that may have been sent with it.
  if (losses >= kLossesUntilAlone) alone_left_ = std::max(options_.queue_depth, 1U);
  if (losses < kMostLosses * (1 + options_.connection.other_portals.size())) return false;
  active_.Remove(oldest);
  RefuseRequest(oldest, EIO);
  return true;
}

void RequestQueue::RefuseQueued(int error) {
  while (!queued_.empty()) RefuseRequest(queued_.PopFront(), error);
}

std::optional<RequestQueue::Clock::time_point> RequestQueue::OldestSince() const {
  if (active_.empty() || !active_.front()->internal.in_flight) return std::nullopt;
  return active_.front()->internal.at;
}

RequestQueue::Clock::duration RequestQueue::TimeLimit(LunOp op) const {
  switch (op) {
    case LunOp::kFlush:
      return Clock::duration::max();
    case LunOp::kDiscard:
    case LunOp::kWriteZeroes:
      return options_.bulk_command_timeout;
    default:
      return options_.command_timeout;
  }
}

bool RequestQueue::IsOverdue(Clock::time_point now) const {
  for (const LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    const LunOp op = at->internal.syncing ? LunOp::kFlush : at->op;
    if (at->internal.in_flight && now - at->internal.at >= TimeLimit(op)) return true;
  }
  return false;
}

}  // namespace lunkeeper::iscsi
