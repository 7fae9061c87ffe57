#pragma once
// The iSCSI protocol of one session on one connection, without its socket: bytes in, bytes out (RFC 7143;
// error recovery level 0). What it says is decided by bytes alone, so it is tested and fuzzed
// with bytes alone.
//
// The owner moves bytes: InputSpace says where received bytes go and TakeInput how many came; OutputPieces
// says what to send and MarkSent how much went. Payloads are not copied on the way out, and large ones not on
// the way in.
//
//                 BeginLogin            last answer of the login
//    (no session) ----------> logging in ------------------------> full feature phase
//                                 |                                  |            |
//                                 v                                  v            v  SendLogout, answered
//                              broken, until BeginLogin <------------+       (no session)
//
// One thread. Nothing allocates after the constructor (but see chap.h). Tasks belong to the session; their
// data belong to the caller, and stay put until OnTaskDone.
//
// What comes from the wire is bounded and checked; anything that breaks the protocol ends the session:
// broken() says so, failure() why, and only BeginLogin makes it useful again. Tasks in flight are then
// forgotten, without OnTaskDone.

#include <sys/uio.h>

#include <array>
#include <chrono>
#include <utility>

#include "devices/iscsi/login.h"
#include "devices/iscsi/pdu.h"
#include "devices/iscsi/pdu_reader.h"
#include "devices/iscsi/pdu_writer.h"
#include "devices/iscsi/reason.h"
#include "devices/iscsi/sequence_numbers.h"
#include "devices/iscsi/task.h"
#include "devices/iscsi/task_queue.h"
#include "devices/iscsi/task_table.h"

namespace lunkeeper::iscsi {

class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void OnLoggedIn() = 0;
  virtual void OnTaskDone(Task& task) = 0;     // the task is free again when this returns
  virtual void OnReset(uint8_t response) = 0;  // RFC 7143, 11.6.1; 0: the LUN's commands are over
  virtual void OnLoggedOut() = 0;
  // The target asks for a logout within this time, or it ends the session itself.
  virtual void OnLogoutWanted(std::chrono::seconds within) = 0;
  // The target says, of no command, that a write which it had acknowledged has failed.
  virtual void OnLostWrite() = 0;
};

class InitiatorSession {
 public:
  // `connection` and `handler` outlive the session. `depth` is the number of tasks, at most 1024.
  InitiatorSession(const Connection& connection, uint32_t depth, SessionHandler* handler);

  // On a new connection: forgets all and logs in.
  void BeginLogin();

  // Where to receive to, in this order; the number of places. TakeInput then takes what came, and calls the
  // handler.
  int InputSpace(iovec space[2]) { return reader_.InputSpace(space); }
  // With fewer bytes than these there is nothing to do but wait for more; at least 1.
  size_t awaited_bytes() const { return reader_.awaited_bytes(); }
  void TakeInput(size_t count);
  // The read whose data come next, if they come whole and with a good status; else nullptr.
  const Task* WholeData() const;
  // What to send, in this order; the number of pieces, 0 if there is nothing.
  int OutputPieces(const iovec** pieces);
  void MarkSent(size_t count);

  // A free task if a command may be started now, else nullptr. It is to be filled and started at once.
  Task* NewTask();
  void StartTask(Task* task);
  void ResetLun();  // LOGICAL UNIT RESET, with nothing in flight
  void SendPing();  // makes the target say something
  void SendLogout();

  // Since the last BeginLogin; also when it has broken since.
  bool logged_in() const { return full_feature_; }
  bool broken() const { return broken_; }
  bool refused() const { return refused_; }  // broken, and another login would be too
  // Broken by a digest: what was sent is not what came, on either side.
  bool corrupted() const { return corrupted_; }
  const char* failure() const { return failure_.text(); }
  std::string_view moved_to() const { return login_.moved_to(); }  // see there
  // How long the target wants no login after this session; told once.
  std::chrono::seconds TakeTimeToWait() { return std::exchange(time_to_wait_, {}); }
  // The owner's own reasons to give up this connection; may be called from the handler.
  void BreakOff(const char* what);
  const NegotiatedParameters& parameters() const { return login_.parameters(); }

 private:
  static constexpr size_t kControls = 8;

  // Requests that are no task (login, reset, ping, logout), in the order in which they are sent.
  struct Control {
    Header header;
    bool is_login;  // carries the login's text
  };

  // What the target sends. All return false when nothing more may be read.
  bool ActOnNext();
  bool OnPdu(const PduReader::Pdu& pdu);
  bool OnDataIn(const PduReader::Pdu& pdu);
  bool OnDataInEnd();
  bool OnLoginResponse(const PduReader::Pdu& pdu);
  bool OnScsiResponse(const PduReader::Pdu& pdu);
  bool OnR2t(const uint8_t* header);
  bool OnNopIn(const uint8_t* header);
  bool OnAsyncMessage(const PduReader::Pdu& pdu);
  bool OnResetResponse(const uint8_t* header);
  bool OnLogoutResponse(const uint8_t* header);
  bool CheckStatSn(const uint8_t* header);
  Task* FindTask(const uint8_t* header);
  bool CompleteTask(Task* task);
  void FinishTask(Task* task);
  bool FailDigest(const char* what) { return BreakOff(what), corrupted_ = true, false; }
  __attribute__((format(printf, 2, 3))) bool FailProtocol(const char* format, ...);

  // What goes to the target.
  void FillBatch();
  void SendCommand(Task* task);
  void SendDataOut(Task* task);
  bool QueueControl(const Header& header, bool is_login = false);
  void QueueLogin();

  const Connection& connection_;
  SessionHandler* const handler_;
  LoginPhase login_;
  bool full_feature_ = false, broken_ = false, refused_ = false, corrupted_ = false;
  bool resetting_ = false, pinging_ = false, logging_out_ = false;  // an answer is due
  Reason failure_;
  std::chrono::seconds time_to_wait_{};

  TaskTable tasks_;
  SequenceNumbers numbers_;
  uint32_t unsent_commands_ = 0;

  PduReader reader_;
  PduWriter writer_;
  TaskQueue send_queue_;
  Task* early_ = nullptr;  // done, but with data in the batch
  std::array<Control, kControls> controls_;
  size_t control_count_ = 0;
};

}  // namespace lunkeeper::iscsi
