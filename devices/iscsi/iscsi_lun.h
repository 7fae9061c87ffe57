#pragma once
// The Lun: what is done when. It owns the connection, the session, the identification and the requests, and
// moves from phase to phase; whatever goes wrong leads back to kWaiting, or to failure for good (lun.h says
// which).
//
//            Start                                                        the same LUN
//    kIdle --------> kConnecting --> kLoggingIn --> kResetting --> kIdentifying --> kReady
//                      ^   |             |              |            ^ |    |          |
//             back-off |   |             |              |            | v    |          | connection lost
//              is over |   |             |              |          kPausing |          |
//                      |   v             v              v              v    v          v
//                    kWaiting <--------------------------------------------------------+
//                               a step fails, or takes too long
//
//    kReady, with nothing in flight:  Close --> kClosing (logout) --> kEnded
//    kReady, the target wants a logout:  --> kLeaving (what is in flight ends, logout) --> kWaiting
//    any, for good:  refused, another LUN, away for too long, Fail, Close --> kEnded
//
//    phase        | waits for                                    | at most
//    -------------+----------------------------------------------+--------------------
//    kConnecting  | the TCP connection                           | login_timeout, until the end of the login;
//    kLoggingIn   | the login's last answer                      |   less where there is another portal
//    kResetting   | the LUN reset: the old commands are over     | while pings are answered and no peer opens
//    kIdentifying | the answer to a question                     | login_timeout, each
//    kPausing     | the moment to ask, of a LUN that is not ready|
//    kReady       | requests and answers                         |
//    kLeaving     | the answers to commands; that to the logout  | as the target says, login_timeout; 1 s
//    kWaiting     | the end of the back-off                      | 100 ms to 1 s, divided by the portals
//    kClosing     | the answer to the logout                     | 1 s
//
// From the first step until kReady, all together may take replacement_timeout; the clock starts anew when a
// ready connection is lost, and with each ping that is answered in kResetting. Requests are sent in kReady
// only. Implementation header; users include lun.h. One thread.

#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/lun.h"
#include "devices/iscsi/lun_connection.h"
#include "devices/iscsi/lun_identification.h"
#include "devices/iscsi/request_queue.h"
#include "devices/iscsi/silence_watch.h"

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
  void SendQueued() override;
  void Fail(const std::string& reason) override;
  void Close() override;

 private:
  enum class Phase {
    kIdle,
    kWaiting,
    kConnecting,
    kLoggingIn,
    kResetting,
    kIdentifying,
    kPausing,
    kReady,
    kLeaving,
    kClosing,
    kEnded
  };

  // SessionHandler: what the session tells while it takes input.
  void OnLoggedIn() override;
  void OnReset(uint8_t response) override;
  void OnTaskDone(Task& task) override;
  // Leads to GiveUpConnection, which ends the Lun in kClosing.
  void OnLoggedOut() override { session_.BreakOff("logged out"); }
  void OnLogoutWanted(std::chrono::seconds within) override;
  void OnLostWrite() override { requests_.NoteLostWrite(); }

  // Steps towards kReady.
  void BeginConnect();
  void FinishConnect();
  void SendQuestion();
  void OnReply(const Task& task);
  void AcceptLun();

  // Steps away from it.
  void GiveUpConnection(const char* why);
  void EndIfBroken();
  void EndLun(LunHealth health, LunFailure failure, const char* reason);
  void FailLun(LunFailure failure, const char* reason) { EndLun(LunHealth::kFailed, failure, reason); }
  void BreakSession(LunFailure failure);

  void ReceiveAll();
  void SendAll();
  void StartDueWork();
  bool CheckReplacementTime();
  void CheckReadyTimes();
  bool CheckSilence(const char* why);
  void NoteHeard() { silence_.OnHeard(now_), state_->stalled = false; }
  void AwaitResetLonger();
  void OnPhaseTimeout();
  void WatchSilence() { silence_.Start(now_, silence_limit_.limit() / 2, silence_limit_.limit()); }
  bool IsStarting() const { return phase_ >= Phase::kWaiting && phase_ <= Phase::kPausing; }
  // Where there is another portal, an attempt at this one is short.
  Clock::duration ConnectLimit() const {
    const auto limit = connection_.has_choice() ? silence_limit_.limit() : options_.login_timeout;
    return std::min<Clock::duration>(options_.login_timeout, limit);
  }
  Clock::duration LoginLimit() const {
    const bool shorter = connection_.has_choice() && connection_.in_first_round();
    return shorter ? std::min(options_.login_timeout, 2 * options_.path_timeout) : options_.login_timeout;
  }
  // What the target asked for, as far as that lets the volume live: the next portal may serve it.
  Clock::duration AskedPause() {
    const auto limit = connection_.has_choice() ? options_.path_timeout : options_.login_timeout;
    return std::min<Clock::duration>({session_.TakeTimeToWait(), limit, options_.replacement_timeout / 4});
  }
  // The order is the contract of lun_state.h: the reason is there when the health is seen.
  void SetHealth(LunHealth health, const char* reason) {
    state_->reason.Store(reason);
    state_->health = health;
  }
  void SetNotReady(const char* reason);
  Clock::time_point NextReadyDeadline() const;
  Clock::time_point NextStall() const;

  const LunOptions options_;
  LunState* const state_;
  InitiatorSession session_;
  LunConnection connection_;
  LunIdentification identification_;
  RequestQueue requests_;
  Phase phase_ = Phase::kIdle;
  LunFailure fatal_ = LunFailure::kNone;  // found while the session was at work, with reason_
  Reason reason_;

  Clock::time_point now_;
  Clock::time_point phase_deadline_;  // of the step under way, or the end of the back-off
  Clock::time_point give_up_;         // the replacement time-out, while not ready
  Clock::duration backoff_{};
  SilenceLimit silence_limit_;
  SilenceWatch silence_;
  Clock::time_point next_check_;  // of the times of all commands in flight
  bool reset_begun_ = false;      // the answer that led to kResetting has been taken
};

}  // namespace lunkeeper::iscsi
