#pragma once
// The Lun: policy over a Session. It connects, logs in, has the LUN reset, asks what the LUN is, and then
// carries out requests; whatever goes wrong leads back to the first of these steps, or to failure for good
// (lun.h says which). Implementation header; users include lun.h. One thread.

#include <array>

#include "devices/iscsi/lun.h"
#include "devices/iscsi/request_list.h"
#include "devices/iscsi/scsi.h"
#include "devices/iscsi/session.h"
#include "devices/iscsi/socket.h"

namespace lunkeeper::iscsi {

class IscsiLun final : public Lun, private SessionHandler {
 public:
  IscsiLun(LunOptions options, LunState* state);

  void Start() override;
  Interest interest() const override;
  void OnReady() override;
  Clock::time_point NextDeadline() const override;
  void OnTimer(Clock::time_point now) override;
  void Submit(LunRequest* request) override;
  void Kick() override;
  void Fail(const std::string& reason) override;
  void Close() override;

 private:
  enum class Phase {
    kIdle,
    kWaiting,
    kConnecting,
    kLoggingIn,
    kResetting,
    kAsking,
    kReady,
    kClosing,
    kEnded
  };

  // The way to readiness, and back (iscsi_lun.cc).
  void OnLoggedIn() override;
  void OnReset(uint8_t response) override;
  void OnLoggedOut() override;
  void BeginConnect();
  void FinishConnect();
  void StartWork();
  void Ask();
  void OnAnswer(const Task& task);
  void Accept();
  bool IsSameLun();
  void PublishFacts();
  void ReceiveAll();
  ssize_t ReceiveOnce(bool woken_up, bool* drained);
  LunRequest* Deliverable() const;
  ssize_t Deliver(LunRequest& request);
  void AwaitEnough();
  void SendAll();
  void GiveUpConnection(const char* why);
  void EndIfBroken();
  void End(LunHealth health, LunFailure failure, const char* reason);
  void SetHealth(LunHealth health, const char* reason);
  void CheckTimes();

  // Requests (iscsi_lun_requests.cc).
  void OnTaskDone(Task& task) override;
  void StartRequests();
  void StartDue();
  int Refusal(const LunRequest& request) const;
  void StartCommand(LunRequest* request, Task* task);
  void OnCommandDone(LunRequest* request, const Task& task);
  void OnPartDone(LunRequest* request, const Task& task);
  void Postpone(LunRequest* request, Clock::duration delay);
  void Finish(LunRequest* request, int error);
  void Account(const LunRequest& request);
  void AnswerLater(LunRequest* request, int error);
  void DeliverAnswers();
  void TakeBackRequests();
  Clock::time_point NextRequestDeadline() const;
  Clock::time_point NextStall() const;

  const LunOptions options_;
  LunState* const state_;
  const std::optional<Address> address_;
  Session session_;
  UniqueFd socket_;
  Phase phase_ = Phase::kIdle;
  bool want_write_ = false;
  size_t readable_from_ = 1;              // bytes; see AwaitEnough
  bool kicking_ = false;                  // `done` is not to be called now
  LunFailure fatal_ = LunFailure::kNone;  // found while the session was at work, with reason_
  Reason reason_;

  Clock::time_point now_;
  Clock::time_point phase_deadline_;  // of the step under way, or the end of the back-off
  Clock::time_point give_up_;         // the replacement time-out, while not ready
  Clock::duration backoff_{};
  Clock::time_point last_received_;  // in this session
  bool pinged_ = false;

  Question question_ = Question::kReady;
  int question_retries_ = 0;
  bool question_waits_ = false;  // the LUN was not ready to answer: ask again at phase_deadline_
  LunFacts facts_, asked_;       // of the session in use; what the present login has found so far
  alignas(8) std::array<char, kMaxAnswer + 1> answer_;

  RequestList queued_;      // not started
  RequestList active_;      // started, in the order of submission
  RequestList answered_;    // only `done` is missing
  uint32_t postponed_ = 0;  // how many of active_ have no command in flight
  Clock::time_point due_;   // the earliest time one of those is to be sent
  Clock::time_point next_check_;
};

}  // namespace lunkeeper::iscsi
