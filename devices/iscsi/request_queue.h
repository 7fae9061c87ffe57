#pragma once
// The requests of a Lun from Submit to `done`: started as commands of the session, split, repeated, answered,
// and taken back when the connection is lost.
//
//   Submit --> queued --> in flight --> answered (done is called)
//                 ^         |    ^
//                 |         v    |  after a part, or when the LUN was busy
//                 |       postponed
//                 |         |
//                 +---------+  TakeBack: the connection is gone
//
// Order: what has been started comes before what has not, each in the order of submission, also after a lost
// connection. That order is what keeps an old write from landing on a newer one, together with the LUN reset
// before the first command of each connection (iscsi_lun.h).
//
// One thread; nothing allocates. All arguments outlive it; requests belong to the caller. `done` is called by
// FinishAnswered and by OnCommandDone, but by neither while answers are held.

#include <array>

#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/lun.h"
#include "devices/iscsi/request_list.h"
#include "devices/iscsi/scsi.h"

namespace lunkeeper::iscsi {

class RequestQueue {
 public:
  using Clock = Lun::Clock;

  RequestQueue(const LunOptions& options, LunState* state, InitiatorSession* session)
      : options_(options), state_(state), session_(session), flush_was_cut_(state->flush_open) {}

  void Submit(LunRequest* request);
  // Takes a request only to refuse it.
  void RefuseRequest(LunRequest* request, int error);
  // What the LUN said of itself at the login of this connection. Before the first StartRequests on it.
  void SetFacts(const LunFacts& facts) { facts_ = facts, state_->flush_open = flush_was_cut_ = false; }
  // Since then a session, perhaps of the process before this one, has ended that had a flush under way, of a
  // cache that may be lost. Its answer may have been an error, which the kernel reports once.
  bool flush_was_cut() const { return flush_was_cut_; }

  // Starts what can be started now, postponed requests first.
  void StartRequests(Clock::time_point now);
  void OnCommandDone(LunRequest* request, const Task& task, Clock::time_point now);
  // The connection is gone: everything that was started goes back, before what was not. True: but for one
  // request, which is refused, since too many connections have ended with it.
  bool TakeBack();
  // Connections have ended again and again with the same request: requests are sent one by one.
  bool sends_one_by_one() const { return alone_left_ > 0; }
  // A portal has let in, and carried out nothing since: its gateway stands by, say.
  bool is_refused() const { return refused_; }
  // The portal is of no use: a connection has ended before with the request that is the oldest in flight, or
  // doubt().
  bool WantsOtherPortal() const;
  // The target has reported what may be otherwise at another portal (lun.h): this connection is to be ended.
  // A text for people; null: it has not.
  const char* doubt() const { return doubt_; }
  // The target has said, of no command, that an acknowledged write is lost.
  void NoteLostWrite() { state_->lost_writes = true; }
  // Refuses everything that is queued.
  void RefuseQueued(int error);
  // Calls `done` of requests that are answered.
  void FinishAnswered();
  // While true, `done` is not called: answers wait for FinishAnswered.
  void HoldAnswers(bool hold) { hold_ = hold; }

  bool has_answers() const { return !answered_.empty(); }
  bool has_started() const { return !active_.empty(); }
  bool has_in_flight() const { return OldestInFlight() != nullptr; }
  // When the oldest request was sent; nothing if it is not in flight, or there is none.
  std::optional<Clock::time_point> OldestSince() const;
  // Whether a command has been in flight for longer than its kind may take.
  bool IsOverdue(Clock::time_point now) const;
  // When a postponed request is due; max: none is.
  Clock::time_point NextDue() const { return postponed_ > 0 ? due_ : Clock::time_point::max(); }

 private:
  void StartPostponed(Clock::time_point now);
  Clock::duration TimeLimit(LunOp op) const;
  bool NeedsSync(const LunRequest& request) const;
  int RefusalOf(const LunRequest& request) const;
  void StartCommand(LunRequest* request, Task* task, Clock::time_point now);
  void OnPartDone(LunRequest* request, const Task& task, Clock::time_point now);
  void RetryLater(LunRequest* request, Clock::time_point now);
  bool IsStarved(const LunRequest& request, Clock::time_point now) const;
  void TryElsewhere(LunRequest* request, Clock::time_point now);
  bool CanLose() const;
  bool IsDoubted(LunRequest& request, Clock::time_point now);
  bool has_choice() const { return !options_.connection.other_portals.empty(); }
  LunRequest* OldestInFlight() const;
  bool CountLoss();
  int TakeCapacity(const Task& task);
  void PostponeUntil(LunRequest* request, Clock::time_point at);
  void FinishRequest(LunRequest* request, int error, Clock::time_point now);
  void FinishDurably(LunRequest* request, Clock::time_point now);
  void CloseFlushes();
  void CountSuccess(const LunRequest& request, Clock::time_point now);
  void CountError(const LunRequest& request, int error);

  const LunOptions& options_;
  LunState* const state_;
  InitiatorSession* const session_;
  bool flush_was_cut_;

  LunFacts facts_;
  RequestList queued_;       // not started
  RequestList active_;       // started, in the order of submission
  RequestList answered_;     // only `done` is missing
  uint32_t postponed_ = 0;   // how many of active_ have no command in flight
  Clock::time_point due_;    // the earliest time one of those is to be sent
  uint32_t alone_left_ = 0;  // so many requests are yet to be sent one by one
  bool hold_ = false;
  const char* doubt_ = nullptr;
  Clock::time_point served_ = {};          // when a command was carried out last
  bool refused_ = false;                   // a portal has refused one as not served there, since then
  Clock::time_point believed_until_ = {};  // its errors are
  alignas(8) std::array<char, kMaxAnswer + 1> capacity_answer_;
};

}  // namespace lunkeeper::iscsi
