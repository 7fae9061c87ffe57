// What becomes of a request: started, judged, sent again, answered.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fail_point.h"
#include "devices/iscsi/iscsi_lun.h"

namespace lunkeeper::iscsi {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kRetriesAtOnce =
    100;  // of a command the LUN would not carry out, giving no reason to wait

bool Modifies(LunOp op) { return op == LunOp::kWrite || op == LunOp::kDiscard || op == LunOp::kWriteZeroes; }

// 10, 20, 40 … 1000 ms.
milliseconds RetryDelay(uint32_t retries) {
  return milliseconds(std::min(10u << std::min(retries, 7u), 1000u));
}

}  // namespace

void IscsiLun::Submit(LunRequest* request) {
  request->error = 0;
  request->internal = {};
  request->delivery.done = false;
  if (phase_ == Phase::kEnded || phase_ == Phase::kClosing) return AnswerLater(request, EIO);
  queued_.PushBack(request);
}

void IscsiLun::StartRequests() {
  if (postponed_ > 0 && now_ >= due_) StartDue();
  while (!queued_.empty()) {
    LunRequest* request = queued_.front();
    const int refusal = Refusal(*request);
    const bool empty = refusal == 0 && request->length == 0 && request->op <= LunOp::kWriteZeroes &&
                       request->op != LunOp::kFlush;
    if (refusal != 0 || empty) {
      AnswerLater(queued_.PopFront(), refusal);
      continue;
    }
    Task* task = session_.NewTask();
    if (task == nullptr) return;
    active_.PushBack(queued_.PopFront());
    StartCommand(request, task);
  }
}

// Those whose time has come, in the order of submission; due_ then says when the next one's is.
void IscsiLun::StartDue() {
  due_ = Clock::time_point::max();
  for (LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    if (at->internal.in_flight) continue;
    Task* task = at->internal.at <= now_ ? session_.NewTask() : nullptr;
    if (task == nullptr) {
      due_ = std::min(due_, at->internal.at);
      continue;
    }
    --postponed_;
    StartCommand(at, task);
  }
}

// 0, or the errno of a request the LUN need not be asked about.
int IscsiLun::Refusal(const LunRequest& request) const {
  if (request.op == LunOp::kFlush || request.op == LunOp::kReadCapacity) return 0;
  const uint64_t size = facts_.size_bytes();
  if (request.offset > size || request.length > size - request.offset) return EINVAL;
  if (request.offset % facts_.block_size != 0 || request.length % facts_.block_size != 0) return EINVAL;
  if (Modifies(request.op) && (options_.read_only || facts_.write_protected)) return EROFS;
  if (request.op == LunOp::kDiscard && !facts_.can_unmap()) return EOPNOTSUPP;
  if (request.op == LunOp::kWriteZeroes && !state_->write_same) return EOPNOTSUPP;
  return 0;
}

void IscsiLun::StartCommand(LunRequest* request, Task* task) {
  auto& state = request->internal;
  if (request->op == LunOp::kReadCapacity) {
    BuildQuestion(Question::kCapacity, answer_.data(), *task);
  } else {
    state.span = CommandLength(*request, facts_);
    BuildCommand(*request, facts_, state.span, *task);
  }
  if (request->op == LunOp::kFlush) state.covers = state_->cached_writes;
  state.in_flight = true;
  state.at = now_;
  task->owner = request;
  session_.Start(task);
}

void IscsiLun::OnTaskDone(Task& task) {
  if (task.owner == nullptr) return OnAnswer(task);
  OnCommandDone(static_cast<LunRequest*>(task.owner), task);
}

void IscsiLun::OnCommandDone(LunRequest* request, const Task& task) {
  auto& state = request->internal;
  state.in_flight = false;
  const Outcome outcome = Judge(task, request->op);
  switch (outcome.verdict) {
    case Verdict::kDone:
      return OnPartDone(request, task);
    case Verdict::kAgain:
      if (++state.retries > kRetriesAtOnce) return Finish(request, EIO);
      return Postpone(request, Clock::duration::zero());
    case Verdict::kLater:
      if (++state.retries > kRetriesAtOnce + options_.replacement_timeout / seconds(1))
        return Finish(request, EIO);
      return Postpone(request, RetryDelay(state.retries - 1));
    case Verdict::kFailed:
      if (outcome.error == EOPNOTSUPP && request->op == LunOp::kWriteZeroes) state_->write_same = false;
      return Finish(request, outcome.error);
  }
}

void IscsiLun::OnPartDone(LunRequest* request, const Task& task) {
  auto& state = request->internal;
  if (request->op == LunOp::kReadCapacity) {
    LunFacts grown = facts_;
    if (!TakeAnswer(Question::kCapacity, task, grown) || grown.block_size != facts_.block_size) {
      return Finish(request, EIO);
    }
    if (grown.blocks > facts_.blocks) {
      facts_.blocks = grown.blocks;
      state_->size_bytes = grown.size_bytes();
    }
    return Finish(request, 0);
  }
  if (request->op == LunOp::kFlush) return Finish(request, 0);
  state.position += state.span;
  state.retries = 0;
  if (state.position < request->length) return Postpone(request, Clock::duration::zero());
  Finish(request, 0);
}

void IscsiLun::Postpone(LunRequest* request, Clock::duration delay) {
  request->internal.at = now_ + delay;
  due_ = postponed_++ == 0 ? request->internal.at : std::min(due_, request->internal.at);
}

// What is told to others about a request that succeeded; before `done`, so that nothing acknowledged is ever
// forgotten.
void IscsiLun::Account(const LunRequest& request) {
  switch (request.op) {
    case LunOp::kRead:
      ++state_->reads;
      state_->read_bytes += request.length;
      break;
    case LunOp::kWrite:
      ++state_->writes;
      state_->written_bytes += request.length;
      break;
    case LunOp::kFlush:
      ++state_->flushes;
      state_->flushed_writes = std::max<uint64_t>(state_->flushed_writes, request.internal.covers);
      break;
    default:
      break;
  }
  if (Modifies(request.op) && facts_.write_cache && !request.fua) ++state_->cached_writes;
}

void IscsiLun::Finish(LunRequest* request, int error) {
  active_.Remove(request);
  if (error == 0) Account(*request);
  request->error = error;
  if (error != 0 && error != EOPNOTSUPP) ++state_->errors;
  if (kicking_) return answered_.PushBack(request);
  if (request->op == LunOp::kWrite) FAIL_POINT("lun.write.answered");
  request->done(request);
}

void IscsiLun::AnswerLater(LunRequest* request, int error) {
  request->error = error;
  if (error != 0 && error != EOPNOTSUPP) ++state_->errors;
  answered_.PushBack(request);
}

void IscsiLun::DeliverAnswers() {
  // Not those that `done` submits and that are refused at once: a caller that retries for ever must not hang
  // here.
  RequestList now;
  now.Prepend(answered_);
  while (!now.empty()) {
    LunRequest* request = now.PopFront();
    request->done(request);
  }
}

// The connection is gone: everything that was started begins anew, before what was not, in the order of
// submission.
void IscsiLun::TakeBackRequests() {
  for (LunRequest* at = active_.front(); at != nullptr; at = at->internal.next) {
    at->internal.in_flight = false;
    at->internal.position = 0;  // parts already done may have been lost with the storage host's cache
    at->internal.retries = 0;
  }
  queued_.Prepend(active_);
  postponed_ = 0;
}

Lun::Clock::time_point IscsiLun::NextRequestDeadline() const {
  Clock::time_point next =
      last_received_ + (pinged_ ? options_.command_timeout / 3 : options_.command_timeout / 6);
  next = std::min(next, NextStall());
  if (postponed_ > 0) next = std::min(next, due_);
  if (!active_.empty()) next = std::min(next, next_check_);
  return next;
}

}  // namespace lunkeeper::iscsi
