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
constexpr auto kStall = milliseconds(500);
constexpr auto kQuestionDelay = milliseconds(250), kLogoutTimeout = milliseconds(1000);
constexpr int kQuestionRetries = 40;
constexpr int kReceivesPerCall = 16;  // so that one busy LUN does not starve the others of its loop
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<LunHealth>::is_always_lock_free,
              "LunState is shared between processes");
constexpr uint8_t kResetDone = 0, kResetNotSupported = 5;

}  // namespace

IscsiLun::IscsiLun(LunOptions options, LunState* state)
    : options_(std::move(options)),
      state_(state),
      address_(ParseAddress(options_.connection.portal)),
      session_(options_.connection, std::clamp(options_.queue_depth, 1u, 1024u), this) {}

void IscsiLun::Start() {
  now_ = Clock::now();
  if (state_->health == LunHealth::kFailed) {  // for good: also after the process that found out is gone
    phase_ = Phase::kEnded;
    return;
  }
  if (!address_) {
    return End(LunHealth::kFailed, LunFailure::kBadPortal, "the portal is not a numeric address and port");
  }
  SetHealth(state_->boot_id[0] == '\0' ? LunHealth::kConnecting : LunHealth::kReconnecting, "logging in");
  give_up_ = now_ + options_.replacement_timeout;
  backoff_ = kFirstBackoff;
  BeginConnect();
}

Lun::Interest IscsiLun::interest() const {
  if (!socket_) return {-1, 0};
  if (phase_ == Phase::kConnecting) return {socket_.get(), EPOLLOUT};
  return {socket_.get(), EPOLLIN | (want_write_ ? uint32_t{EPOLLOUT} : 0)};
}

void IscsiLun::OnReady() {
  if (!socket_) return;
  now_ = Clock::now();
  if (phase_ == Phase::kConnecting) FinishConnect();
  ReceiveAll();
  StartWork();
  SendAll();
  DeliverAnswers();
}

void IscsiLun::Kick() {
  if (phase_ != Phase::kReady) return;
  now_ = Clock::now();
  kicking_ = true;
  StartRequests();
  SendAll();
  kicking_ = false;
}

Lun::Clock::time_point IscsiLun::NextDeadline() const {
  if (!answered_.empty()) return Clock::time_point();  // at once; min() would overflow in the caller
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kEnded:
      return Clock::time_point::max();
    case Phase::kClosing:
      return phase_deadline_;
    case Phase::kReady:
      return NextRequestDeadline();
    default:
      return std::min(phase_deadline_, give_up_);
  }
}

void IscsiLun::OnTimer(Clock::time_point now) {
  now_ = now;
  CheckTimes();
  StartWork();
  SendAll();
  DeliverAnswers();
}

void IscsiLun::CheckTimes() {
  const bool starting = phase_ != Phase::kReady && phase_ != Phase::kClosing && phase_ != Phase::kEnded;
  if (starting && phase_ != Phase::kIdle && now_ >= give_up_) {
    Reason reason;
    reason.Set("away for %lld s: %.120s", static_cast<long long>(options_.replacement_timeout / seconds(1)),
               reason_.text());
    return End(LunHealth::kFailed, LunFailure::kAway, reason.text());
  }
  if (phase_ == Phase::kReady) {
    const auto silent = now_ - last_received_;
    if (silent >= options_.command_timeout / 3) return GiveUpConnection("the target has fallen silent");
    if (silent >= options_.command_timeout / 6 && !std::exchange(pinged_, true)) session_.Ping();
    if (now_ >= NextStall()) state_->stalled = true;
    for (LunRequest* at = now_ >= next_check_ ? active_.front() : nullptr; at != nullptr;
         at = at->internal.next) {
      if (at->internal.in_flight && now_ - at->internal.at >= options_.command_timeout) {
        return GiveUpConnection("a command was not answered in time");
      }
    }
    if (now_ >= next_check_)
      next_check_ = now_ + std::min<Clock::duration>(seconds(1), options_.command_timeout / 4);
    return;
  }
  if (now_ < phase_deadline_) return;
  switch (phase_) {
    case Phase::kWaiting:
      return BeginConnect();
    case Phase::kConnecting:
      return GiveUpConnection("the target does not answer the connection attempt");
    case Phase::kLoggingIn:
      return GiveUpConnection("the target does not answer the login");
    case Phase::kResetting:
      return GiveUpConnection("the old commands are not over yet");
    case Phase::kAsking:
      if (question_waits_) return;  // StartWork asks
      return GiveUpConnection("the LUN does not say what it is");
    case Phase::kClosing:
      return End(LunHealth::kClosed, LunFailure::kNone, "");
    default:
      return;
  }
}

void IscsiLun::BeginConnect() {
  phase_ = Phase::kConnecting;
  phase_deadline_ = now_ + options_.login_timeout;
  socket_ = Connect(*address_);
  readable_from_ = 1;
  if (!socket_) GiveUpConnection(std::strerror(errno));
}

void IscsiLun::FinishConnect() {
  const int error = ConnectResult(socket_.get());
  if (error != 0) return GiveUpConnection(std::strerror(error));
  sockaddr_storage peer;
  socklen_t size = sizeof peer;
  if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;  // not yet
  phase_ = Phase::kLoggingIn;
  session_.Begin();
}

void IscsiLun::OnLoggedIn() {
  FAIL_POINT("lun.login.answered");
  phase_ = Phase::kResetting;
  phase_deadline_ = now_ + options_.command_timeout;
  session_.Reset();
}

void IscsiLun::OnReset(uint8_t response) {
  FAIL_POINT("lun.reset.answered");
  if (response == kResetNotSupported) {
    fatal_ = LunFailure::kNoReset;
    reason_.Set("the target cannot reset a LUN, without which no command can safely be sent again");
    return session_.Break(reason_.text());
  }
  if (response != kResetDone) {
    reason_.Set("the target refused the reset of the LUN (response %u)", response);
    return session_.Break(reason_.text());
  }
  phase_ = Phase::kAsking;
  phase_deadline_ = now_ + options_.login_timeout;
  asked_ = LunFacts();
  question_ = Question::kReady;
  question_retries_ = 0;
  Ask();
}

void IscsiLun::StartWork() {
  if (phase_ == Phase::kReady) return StartRequests();
  const bool due = phase_ == Phase::kAsking && question_waits_ && now_ >= phase_deadline_;
  if (due) Ask();
}

void IscsiLun::Ask() {
  question_waits_ = false;
  Task* task = session_.NewTask();
  if (task == nullptr) return session_.Break("the target takes no commands");
  BuildQuestion(question_, answer_.data(), *task);
  task->owner = nullptr;
  session_.Start(task);
  phase_deadline_ = now_ + options_.login_timeout;
}

void IscsiLun::OnAnswer(const Task& task) {
  constexpr uint8_t kIllegalRequest = 5;
  const Outcome outcome = Judge(task, LunOp::kReadCapacity);
  if (outcome.verdict == Verdict::kDone) {
    if (!TakeAnswer(question_, task, asked_)) {
      reason_.Set("%s: the answer makes no sense for a disk", QuestionName(question_));
      return session_.Break(reason_.text());
    }
  } else if (outcome.verdict != Verdict::kFailed) {
    if (++question_retries_ > kQuestionRetries) return session_.Break("the LUN does not become ready");
    question_waits_ = true;  // asked by StartWork, since the task is free only after this
    phase_deadline_ = now_ + (outcome.verdict == Verdict::kLater ? kQuestionDelay : milliseconds(0));
    return;
  } else if (task.sense_key != kIllegalRequest || !IsOptional(question_)) {
    reason_.Set("%s was refused (status %02x, sense %x/%02x/%02x)", QuestionName(question_), task.status,
                task.sense_key, task.asc, task.ascq);
    return session_.Break(reason_.text());
  }
  question_ = static_cast<Question>(static_cast<uint8_t>(question_) + 1);
  question_waits_ = question_ != Question::kEnd;
  phase_deadline_ = now_;
  if (question_ == Question::kEnd) Accept();
}

void IscsiLun::Accept() {
  if (!IsSameLun()) return session_.Break(reason_.text());
  facts_ = asked_;
  PublishFacts();
  FAIL_POINT("lun.login.accepted");
  phase_ = Phase::kReady;
  backoff_ = kFirstBackoff;
  last_received_ = now_;
  pinged_ = false;
  SetHealth(LunHealth::kHealthy, "");
}

// Sets fatal_ and reason_ if this is not the LUN it has to be, in the state it has to be in.
bool IscsiLun::IsSameLun() {
  if (!options_.serial.empty() && options_.serial != asked_.serial) {
    fatal_ = LunFailure::kOtherLun;
    reason_.Set("the LUN's serial is %.60s, not %.60s: another volume", asked_.serial,
                options_.serial.c_str());
  } else if (state_->block_size != 0 && state_->block_size != asked_.block_size) {
    fatal_ = LunFailure::kOtherLun;
    reason_.Set("the LUN's block size has changed");
  } else if (asked_.size_bytes() < std::max<uint64_t>(options_.size_bytes, state_->size_bytes)) {
    fatal_ = LunFailure::kOtherLun;
    reason_.Set("the LUN has %llu bytes, fewer than it must have",
                static_cast<unsigned long long>(asked_.size_bytes()));
  } else if (state_->boot_id[0] != '\0' && std::strcmp(state_->boot_id, asked_.boot_id) != 0 &&
             state_->unflushed() > 0) {
    fatal_ = LunFailure::kHostRestarted;
    reason_.Set("storage host restarted before %llu acknowledged writes were flushed",
                static_cast<unsigned long long>(state_->unflushed()));
  }
  return fatal_ == LunFailure::kNone;
}

void IscsiLun::PublishFacts() {
  std::memcpy(state_->boot_id, facts_.boot_id, sizeof state_->boot_id);
  state_->block_size = facts_.block_size;
  state_->size_bytes = facts_.size_bytes();
  state_->write_cache = facts_.write_cache;
  state_->unmap = facts_.can_unmap();
  state_->unmap_zeroes = facts_.unmap_zeroes();
  state_->write_same = true;  // until the LUN refuses one
  ++state_->logins;
}

void IscsiLun::ReceiveAll() {
  for (int i = 0; i < kReceivesPerCall && socket_ && !session_.broken(); ++i) {
    if (phase_ == Phase::kConnecting) return;
    bool drained = false;
    const ssize_t got = ReceiveOnce(i == 0, &drained);
    if (got == 0) break;
    if (got < 0) {
      return GiveUpConnection(got == -EPIPE ? "the target closed the connection"
                                            : std::strerror(static_cast<int>(-got)));
    }
    last_received_ = now_;
    pinged_ = false;
    state_->stalled = false;
    session_.Input(static_cast<size_t>(got));
    if (drained) break;
  }
  AwaitEnough();
  EndIfBroken();
}

// Bytes that the session is to be told of, 0 if there are none now, or -errno. `woken_up`: something must
// have come, or the connection has ended.
ssize_t IscsiLun::ReceiveOnce(bool woken_up, bool* drained) {
  if (LunRequest* request = Deliverable()) {
    if (Available(socket_.get()) >= request->length) return Deliver(*request);
    if (!woken_up) return 0;  // we are when all of it is here
  }
  iovec space[2];
  const int count = session_.InputSpace(space);
  const ssize_t got = Receive(socket_.get(), space, count);
  *drained = got < static_cast<ssize_t>(space[0].iov_len + (count > 1 ? space[1].iov_len : 0));
  return got;
}

// The request whose data come next and need not come through here.
LunRequest* IscsiLun::Deliverable() const {
  const Task* task = session_.WholeData();
  if (task == nullptr || task->owner == nullptr) return nullptr;
  auto* request = static_cast<LunRequest*>(task->owner);
  const SplicePipe* splice_pipe = request->delivery.splice_pipe;
  return splice_pipe != nullptr && request->length == task->length && splice_pipe->Takes(task->length)
             ? request
             : nullptr;
}

ssize_t IscsiLun::Deliver(LunRequest& request) {
  Delivery& delivery = request.delivery;
  const SplicePipe::Result result = delivery.splice_pipe->Pass(socket_.get(), request.length,
                                                               delivery.preface, delivery.sink, request.data);
  if (result.outcome == SplicePipe::Outcome::kLost) return -EIO;  // the read is sent again
  delivery.done = result.outcome == SplicePipe::Outcome::kDelivered;
  return static_cast<ssize_t>(delivery.done ? request.length : result.kept);
}

// To be woken up for each segment of a large transfer costs both sides more than the transfer.
void IscsiLun::AwaitEnough() {
  const LunRequest* whole = Deliverable();
  const size_t bytes = whole != nullptr ? whole->length : session_.awaited();
  if (!socket_ || bytes == readable_from_) return;
  readable_from_ = bytes;
  ReadableFrom(socket_.get(), bytes);
}

void IscsiLun::SendAll() {
  want_write_ = false;
  while (socket_ && phase_ != Phase::kConnecting) {
    const iovec* pieces;
    const int count = session_.Output(&pieces);
    if (count == 0) break;
    const ssize_t sent = Send(socket_.get(), pieces, count);
    if (sent < 0) return GiveUpConnection(std::strerror(static_cast<int>(-sent)));
    if (sent == 0) {
      want_write_ = true;
      break;
    }
    session_.Sent(static_cast<size_t>(sent));
  }
  EndIfBroken();
}

void IscsiLun::EndIfBroken() {
  if (!socket_ || phase_ == Phase::kConnecting || !session_.broken()) return;
  if (fatal_ != LunFailure::kNone) return End(LunHealth::kFailed, fatal_, reason_.text());
  if (session_.refused()) return End(LunHealth::kFailed, LunFailure::kRefused, session_.failure());
  GiveUpConnection(session_.failure());
}

// When the oldest command in flight will have waited for half a second in silence; max: it has, or there is
// none.
Lun::Clock::time_point IscsiLun::NextStall() const {
  if (state_->stalled || active_.empty() || !active_.front()->internal.in_flight)
    return Clock::time_point::max();
  return std::max(last_received_, active_.front()->internal.at) + kStall;
}

// Drops the connection; what was in flight waits for the next one.
void IscsiLun::GiveUpConnection(const char* why) {
  socket_.Reset();
  want_write_ = false;
  state_->stalled = false;
  if (phase_ == Phase::kClosing) return End(LunHealth::kClosed, LunFailure::kNone, "");
  if (phase_ == Phase::kReady) give_up_ = now_ + options_.replacement_timeout;
  if (why != reason_.text()) reason_.Set("%s", why);
  SetHealth(state_->boot_id[0] == '\0' ? LunHealth::kConnecting : LunHealth::kReconnecting, reason_.text());
  TakeBackRequests();
  phase_ = Phase::kWaiting;
  phase_deadline_ = now_ + backoff_;
  backoff_ = std::min<Clock::duration>(backoff_ * 2, kLastBackoff);
}

void IscsiLun::OnLoggedOut() { session_.Break("logged out"); }

void IscsiLun::Fail(const std::string& reason) {
  if (phase_ != Phase::kEnded) End(LunHealth::kFailed, LunFailure::kTold, reason.c_str());
  DeliverAnswers();
}

void IscsiLun::Close() {
  if (phase_ == Phase::kEnded) return SetHealth(LunHealth::kClosed, "");
  if (phase_ == Phase::kClosing) return;
  now_ = Clock::now();
  if (phase_ != Phase::kReady || !active_.empty()) {
    End(LunHealth::kClosed, LunFailure::kNone, "");
    return DeliverAnswers();
  }
  TakeBackRequests();
  phase_ = Phase::kClosing;
  phase_deadline_ = now_ + kLogoutTimeout;
  while (!queued_.empty()) AnswerLater(queued_.PopFront(), EIO);
  session_.Logout();
  SendAll();
  DeliverAnswers();
}

// No way leads back from here. Requests are answered by DeliverAnswers.
void IscsiLun::End(LunHealth health, LunFailure failure, const char* reason) {
  socket_.Reset();
  want_write_ = false;
  phase_ = Phase::kEnded;
  state_->failure = failure;
  SetHealth(health, reason);
  TakeBackRequests();
  while (!queued_.empty()) AnswerLater(queued_.PopFront(), EIO);
}

void IscsiLun::SetHealth(LunHealth health, const char* reason) {
  state_->reason.Set(reason);
  state_->health = health;
}

}  // namespace iscsi
}  // namespace lunkeeper
