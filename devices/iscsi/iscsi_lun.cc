// Entry points are the calls of Lun; each of them takes the time once (now_), then receives, starts what is
// due, sends, and last calls `done` of what is answered, since `done` may submit again.
//
// The session calls back (SessionHandler) in the middle of TakeInput. A handler must not close the connection
// under it: it breaks the session off, with reason_ and, where that is final, fatal_, and EndIfBroken draws
// the conclusion once TakeInput has returned.
//
// Killed at any line: LunState is all that is left. What was acknowledged is counted there before it is
// acknowledged, so a successor knows of every cached write that the storage host might still lose.

#include "devices/iscsi/iscsi_lun.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail_point.h"

namespace lunkeeper {

std::unique_ptr<Lun> MakeLun(LunOptions options, LunState* state) {
  return std::make_unique<iscsi::IscsiLun>(std::move(options), state);
}

namespace iscsi {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kFirstBackoff = milliseconds(100), kLastBackoff = milliseconds(1000);
// A target that is silent for this long although something was asked of it is shown as stalled.
constexpr auto kStall = milliseconds(500);
constexpr auto kQuestionPause = milliseconds(250), kLogoutTimeout = milliseconds(1000);
// The array alone may know that a flush failed which a session's end has cut: it soon shows another cache id.
constexpr auto kErrorsShow = milliseconds(1500);
constexpr uint32_t kMostTasks = 1024;

}  // namespace

IscsiLun::IscsiLun(LunOptions options, LunState* state)
    : options_(std::move(options)),
      state_(state),
      session_(options_.connection, std::clamp(options_.queue_depth, 1u, kMostTasks), this),
      connection_(options_.connection, &session_),
      identification_(options_, state, &session_),
      requests_(options_, state, &session_),
      silence_limit_(connection_.has_choice() ? options_.path_timeout : options_.command_timeout / 3,
                     options_.command_timeout / 3) {}

void IscsiLun::Start() {
  now_ = Clock::now();
  if (state_->health == LunHealth::kFailed) {  // for good: also after the process that found out is gone
    phase_ = Phase::kEnded;
    return;
  }
  if (!connection_.has_address())
    return FailLun(LunFailure::kBadPortal, "the portal is not a numeric address and port");
  SetNotReady("logging in");
  give_up_ = now_ + options_.replacement_timeout;
  backoff_ = kFirstBackoff;
  BeginConnect();
}

Lun::Interest IscsiLun::interest() const {
  if (!connection_.is_open()) return {-1, 0};
  if (phase_ == Phase::kConnecting) return {connection_.fd(), EPOLLOUT};
  return {connection_.fd(), EPOLLIN | (connection_.wants_write() ? uint32_t{EPOLLOUT} : 0)};
}

void IscsiLun::OnReady() {
  if (!connection_.is_open()) return;
  now_ = Clock::now();
  if (phase_ == Phase::kConnecting) FinishConnect();
  ReceiveAll();
  StartDueWork();
  SendAll();
  requests_.FinishAnswered();
}

void IscsiLun::Submit(LunRequest* request) {
  if (phase_ == Phase::kEnded || phase_ == Phase::kClosing) return requests_.RefuseRequest(request, EIO);
  requests_.Submit(request);
}

// `done` is never called from here (lun.h), although sending may end a task: an answer that came early.
void IscsiLun::SendQueued() {
  if (phase_ != Phase::kReady) return;
  now_ = Clock::now();
  requests_.HoldAnswers(true);
  requests_.StartRequests(now_);
  SendAll();
  requests_.HoldAnswers(false);
}

Lun::Clock::time_point IscsiLun::NextDeadline() const {
  // At once. Not min(): the caller subtracts the present from it, which would overflow.
  if (requests_.has_answers()) return Clock::time_point();
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kEnded:
      return Clock::time_point::max();
    case Phase::kLeaving:
    case Phase::kClosing:
      return phase_deadline_;
    case Phase::kReady:
      return NextReadyDeadline();
    default:
      return std::min({phase_deadline_, give_up_, connection_.next_look()});
  }
}

void IscsiLun::OnTimer(Clock::time_point now) {
  now_ = now;
  if (phase_ == Phase::kReady) {
    CheckReadyTimes();
  } else if (!CheckReplacementTime() && (now_ >= phase_deadline_ || connection_.FindOpenedPortal(now_))) {
    OnPhaseTimeout();
  }
  StartDueWork();
  SendAll();
  requests_.FinishAnswered();
}

// Whether the target has been away for too long, and this Lun has ended.
bool IscsiLun::CheckReplacementTime() {
  if (!IsStarting() || now_ < give_up_) return false;
  Reason reason;
  reason.Format("away for %lld s: %.120s", static_cast<long long>(options_.replacement_timeout / seconds(1)),
                reason_.text());
  FailLun(LunFailure::kAway, reason.text());
  return true;
}

// A ping after half of the limit; if that goes unanswered as long again, the connection is dead. The times of
// commands are checked once a second only, since that walks all of them.
void IscsiLun::CheckReadyTimes() {
  if (!CheckSilence("the target has fallen silent")) return;
  if (now_ >= NextStall()) state_->stalled = true;
  if (now_ < next_check_) return;
  if (requests_.IsOverdue(now_)) return GiveUpConnection("a command was not answered in time");
  next_check_ = now_ + std::min<Clock::duration>(seconds(1), options_.command_timeout / 4);
}

// Whether the target is still there, as far as is known; otherwise the connection has been given up.
bool IscsiLun::CheckSilence(const char* why) {
  if (connection_.HasNewBytes()) NoteHeard();
  const bool dead = silence_.IsDead(now_);
  if (dead) GiveUpConnection(why);
  if (!dead && silence_.TakePing(now_)) session_.SendPing();
  return !dead;
}

void IscsiLun::OnPhaseTimeout() {
  switch (phase_) {
    case Phase::kWaiting:
      return BeginConnect();
    case Phase::kConnecting:
      return GiveUpConnection("the target does not answer the connection attempt");
    case Phase::kLoggingIn:
      return GiveUpConnection("the target does not answer the login");
    case Phase::kResetting:
      if (connection_.has_opened_portal()) return GiveUpConnection("the old commands are not over here");
      if (CheckSilence("the old commands are not over yet")) phase_deadline_ = silence_.next_check();
      return;
    case Phase::kIdentifying:
      return GiveUpConnection("the LUN does not say what it is");
    case Phase::kLeaving:
      return GiveUpConnection("the target wants the session to end");
    case Phase::kClosing:
      return EndLun(LunHealth::kClosed, LunFailure::kNone, "");
    default:  // kPausing: StartDueWork asks
      return;
  }
}

void IscsiLun::BeginConnect() {
  phase_ = Phase::kConnecting;
  phase_deadline_ = now_ + ConnectLimit();
  const int error = connection_.Open();  // most failures come later, when the attempt ends
  if (error != 0) GiveUpConnection(std::strerror(error));
}

void IscsiLun::FinishConnect() {
  const LunConnection::Attempt attempt = connection_.FinishOpen();
  if (attempt.error != 0) return GiveUpConnection(std::strerror(attempt.error));
  if (!attempt.connected) return;
  phase_ = Phase::kLoggingIn;
  phase_deadline_ = now_ + LoginLimit();
  session_.BeginLogin();
}

// Nothing may be sent before the commands of the session before this one are over, or an old write could
// still land after a new one. The target answers the reset when they are.
void IscsiLun::OnLoggedIn() {
  FAIL_POINT("lun.login.answered");
  phase_ = Phase::kResetting;
  // The answers to pings put off the end of the replacement time, so they have to come well within it.
  silence_.Start(now_,
                 std::min<Clock::duration>(silence_limit_.limit() / 2, options_.replacement_timeout / 4),
                 silence_limit_.limit());
  phase_deadline_ = silence_.next_check();
  session_.ResetLun();
  connection_.BeginReset(now_ + options_.command_timeout);
  reset_begun_ = false;
}

void IscsiLun::OnReset(uint8_t response) {
  FAIL_POINT("lun.reset.answered");
  connection_.EndReset();
  if (const auto failure = identification_.Restart(response, reason_)) return BreakSession(*failure);
  if (!requests_.flush_was_cut()) return SendQuestion();
  phase_ = Phase::kPausing;
  phase_deadline_ = now_ + kErrorsShow;
  give_up_ += kErrorsShow;
}

void IscsiLun::SendQuestion() {
  phase_ = Phase::kIdentifying;
  phase_deadline_ = now_ + options_.login_timeout;
  if (!identification_.SendQuestion()) session_.BreakOff("the target takes no commands");
}

void IscsiLun::OnTaskDone(Task& task) {
  if (task.owner == nullptr) return OnReply(task);
  if (silence_limit_.OnProgress()) WatchSilence();
  requests_.OnCommandDone(static_cast<LunRequest*>(task.owner), task, now_);
  if (requests_.doubt() != nullptr) session_.BreakOff(requests_.doubt());
}

// What is in flight is waited for, so that nothing is done twice, and nothing new is begun.
void IscsiLun::OnLogoutWanted(seconds within) {
  if (phase_ < Phase::kReady) session_.BreakOff("the target wants the session to end");
  if (phase_ != Phase::kReady) return;
  phase_ = Phase::kLeaving;
  const auto limit = std::min<milliseconds>(within, options_.login_timeout);
  phase_deadline_ = now_ + std::max(limit, kLogoutTimeout);
}

// The next question is asked by StartDueWork, not from here: the task is free only when its handler has
// returned.
void IscsiLun::OnReply(const Task& task) {
  switch (identification_.TakeReply(task, reason_)) {
    case LunIdentification::Progress::kAskNow:
      phase_ = Phase::kPausing;
      phase_deadline_ = now_;
      return;
    case LunIdentification::Progress::kAskLater:
      phase_ = Phase::kPausing;
      phase_deadline_ = now_ + kQuestionPause;
      return;
    case LunIdentification::Progress::kComplete:
      return AcceptLun();
    case LunIdentification::Progress::kFailed:
      return BreakSession(LunFailure::kNone);
  }
}

void IscsiLun::AcceptLun() {
  const LunFailure failure = identification_.CheckIdentity(reason_);
  if (failure != LunFailure::kNone) return BreakSession(failure);
  requests_.SetFacts(identification_.facts());
  identification_.PublishFacts(connection_.portal());
  FAIL_POINT("lun.login.accepted");
  connection_.NoteSuccess();
  phase_ = Phase::kReady;
  WatchSilence();
  SetHealth(LunHealth::kHealthy, "");
}

// What a receive or the passing of time has made possible. Not in the handlers: tasks are not free yet there.
void IscsiLun::StartDueWork() {
  if (phase_ == Phase::kReady) return requests_.StartRequests(now_);
  if (phase_ == Phase::kPausing && now_ >= phase_deadline_) SendQuestion();
  if (phase_ != Phase::kLeaving || requests_.has_in_flight()) return;
  session_.SendLogout();
  phase_deadline_ = std::min<Clock::time_point>(phase_deadline_, now_ + kLogoutTimeout);
}

void IscsiLun::ReceiveAll() {
  if (!connection_.is_open() || phase_ == Phase::kConnecting) return;
  const LunConnection::Received received = connection_.ReceiveAll();
  if (received.any) {
    NoteHeard();
    if (phase_ == Phase::kResetting) AwaitResetLonger();
  }
  if (received.error == 0) return EndIfBroken();
  GiveUpConnection(received.failure());
}

// The target has answered a ping while it still carries out the commands before the reset, a long flush for
// example: it is not away. The login's own answer leads here too, once for each connection.
void IscsiLun::AwaitResetLonger() {
  phase_deadline_ = silence_.next_check();
  if (std::exchange(reset_begun_, true)) give_up_ = now_ + options_.replacement_timeout;
}

void IscsiLun::SendAll() {
  if (!connection_.is_open() || phase_ == Phase::kConnecting) return;
  const int error = connection_.SendAll();
  if (error != 0) return GiveUpConnection(std::strerror(error));
  EndIfBroken();
}

// From a handler: ends the session for reason_; and this Lun, where `failure` is not of this portal alone.
void IscsiLun::BreakSession(LunFailure failure) {
  fatal_ = failure != LunFailure::kOtherLun || connection_.NoteRefusal() ? failure : LunFailure::kNone;
  session_.BreakOff(reason_.text());
}

void IscsiLun::EndIfBroken() {
  if (!connection_.is_open() || phase_ == Phase::kConnecting || !session_.broken()) return;
  if (session_.corrupted()) Count(state_->digest_errors);
  if (fatal_ != LunFailure::kNone) return FailLun(fatal_, reason_.text());
  if (session_.refused() && connection_.NoteRefusal())
    return FailLun(LunFailure::kRefused, session_.failure());
  GiveUpConnection(session_.failure());
}

// Drops the connection; what was in flight waits for the next one.
void IscsiLun::GiveUpConnection(const char* why) {
  const bool talked = phase_ >= Phase::kResetting && phase_ <= Phase::kReady;
  const bool silent = talked && (silence_.IsDead(now_) || requests_.IsOverdue(now_));
  if (silent) silence_limit_.OnMove();
  connection_.Close(silent || phase_ < Phase::kReady || requests_.WantsOtherPortal());
  state_->stalled = false;
  if (phase_ == Phase::kClosing) return EndLun(LunHealth::kClosed, LunFailure::kNone, "");
  if (phase_ >= Phase::kReady) give_up_ = now_ + options_.replacement_timeout;
  // At the session's end: its login says too little.
  const bool was_of_use = phase_ >= Phase::kReady && !requests_.is_refused();
  if (was_of_use && !requests_.sends_one_by_one()) backoff_ = kFirstBackoff;
  if (why != reason_.text()) reason_.Format("%s", why);
  const bool given_up = requests_.TakeBack();
  SetNotReady(given_up ? "a command that ended each session was given up" : reason_.text());
  phase_ = Phase::kWaiting;
  phase_deadline_ = now_ + std::max<Clock::duration>(connection_.PauseBeforeOpen(backoff_), AskedPause());
  backoff_ = std::min<Clock::duration>(backoff_ * 2, kLastBackoff);
}

// Commands in flight are not waited for: they may still be carried out, which lun.h says. The fence that asks
// for this has drained the target before it tells anybody that the volume is free.
void IscsiLun::Fail(const std::string& reason) {
  if (phase_ != Phase::kEnded) FailLun(LunFailure::kRequested, reason.c_str());
  requests_.FinishAnswered();
}

// A logout is only worth waiting for where nothing is in flight: else the target would have to end that
// first.
void IscsiLun::Close() {
  if (phase_ == Phase::kEnded) return SetHealth(LunHealth::kClosed, "");
  if (phase_ == Phase::kClosing) return;
  now_ = Clock::now();
  if (phase_ != Phase::kReady || requests_.has_started()) {
    EndLun(LunHealth::kClosed, LunFailure::kNone, "");
    return requests_.FinishAnswered();
  }
  phase_ = Phase::kClosing;
  phase_deadline_ = now_ + kLogoutTimeout;
  requests_.RefuseQueued(EIO);
  session_.SendLogout();
  SendAll();
  requests_.FinishAnswered();
}

// No way leads back from here. Requests are answered by FinishAnswered.
void IscsiLun::EndLun(LunHealth health, LunFailure failure, const char* reason) {
  connection_.Close();
  phase_ = Phase::kEnded;
  state_->failure = failure;
  SetHealth(health, reason);
  requests_.TakeBack();
  requests_.RefuseQueued(EIO);
}

// A boot id is what a login leaves behind: without one there is no device yet that could be reconnecting.
void IscsiLun::SetNotReady(const char* reason) {
  SetHealth(state_->boot_id[0] == '\0' ? LunHealth::kConnecting : LunHealth::kReconnecting, reason);
}

// When the oldest command in flight will have waited for half a second in silence; max: it has, or there is
// none.
Lun::Clock::time_point IscsiLun::NextStall() const {
  const auto oldest = requests_.OldestSince();
  if (state_->stalled || !oldest) return Clock::time_point::max();
  return std::max(silence_.last_heard(), *oldest) + kStall;
}

Lun::Clock::time_point IscsiLun::NextReadyDeadline() const {
  // The next look is when the silence would be long enough for a ping, or for giving up after one.
  Clock::time_point next = std::min(silence_.next_check(), NextStall());
  next = std::min(next, requests_.NextDue());
  if (requests_.has_started()) next = std::min(next, next_check_);
  return next;
}

}  // namespace iscsi
}  // namespace lunkeeper
