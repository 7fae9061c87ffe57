#pragma once
// The iSCSI protocol of one session on one connection, without its socket: bytes in, bytes out (RFC 7143;
// error recovery level 0, no digests). What it says is decided by bytes alone, so it is tested and fuzzed
// with bytes alone.
//
// The owner moves bytes: InputSpace says where received bytes go and Input how many came; Output says what to
// send and Sent how much went. Payloads are not copied on the way out, and large ones not on the way in.
//
// One thread. Nothing allocates after the constructor (but see chap.h). Tasks belong to the session; their
// data to the caller, and stays put until OnTaskDone.
//
// What comes from the wire is bounded and checked; anything that breaks the protocol ends the session:
// broken() says so, failure() why, and only Begin makes it useful again. Tasks in flight are then forgotten,
// without OnTaskDone.

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "devices/iscsi/login.h"
#include "devices/iscsi/pdu.h"
#include "devices/iscsi/reason.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void OnLoggedIn() = 0;
  virtual void OnTaskDone(Task& task) = 0;     // the task is free again when this returns
  virtual void OnReset(uint8_t response) = 0;  // RFC 7143, 11.6.1; 0: the LUN's commands are over
  virtual void OnLoggedOut() = 0;
};

class Session {
 public:
  // `connection` and `handler` outlive the session. `depth` is the number of tasks, at most 1024.
  Session(const Connection& connection, uint32_t depth, SessionHandler* handler);

  // On a new connection: forgets all and logs in.
  void Begin();

  // Where to receive to, in this order; the number of places. Input then takes what came, and calls the
  // handler.
  int InputSpace(iovec space[2]);
  // With fewer bytes than these there is nothing to do but wait for more; at least 1.
  size_t awaited() const;
  void Input(size_t count);
  // The read whose data, all of them and good, are what comes next; nullptr if something else is.
  const Task* WholeData() const;
  // What to send, in this order; the number of pieces, 0 if there is nothing.
  int Output(const iovec** pieces);
  void Sent(size_t count);

  // A free task if a command may be started now, else nullptr. It is to be filled and started at once.
  Task* NewTask();
  void Start(Task* task);
  void Reset();  // LOGICAL UNIT RESET, with nothing in flight
  void Ping();   // makes the target say something
  void Logout();

  bool broken() const { return broken_; }
  bool refused() const { return refused_; }  // broken, and another login would be too
  const char* failure() const { return failure_.text(); }
  // The owner's own reasons to give up this connection; may be called from the handler.
  void Break(const char* what);
  const Parameters& parameters() const { return login_.parameters(); }

 private:
  static constexpr size_t kInputCapacity = 64 << 10;
  static constexpr uint32_t kLargeData = 32 << 10;     // worth a receive of its own, to save a copy
  static constexpr uint32_t kAwaitAtMost = 128 << 10;  // a slow network must still be seen to move
  static constexpr int kBatchPdus = 64;
  static constexpr size_t kControls = 8;

  // Input.
  bool ParseOne();
  bool OnPdu(const uint8_t* header, const uint8_t* data, uint32_t length);
  bool OnDataIn(const uint8_t* header, uint32_t length);
  bool ReceiveDataIn();
  bool FinishDataIn();
  bool OnLoginResponse(const uint8_t* header, const uint8_t* data, uint32_t length);
  bool OnScsiResponse(const uint8_t* header, const uint8_t* data, uint32_t length);
  bool OnR2t(const uint8_t* header);
  bool OnNopIn(const uint8_t* header);
  bool OnAsyncMessage(const uint8_t* header);
  bool TakeStatSn(const uint8_t* header);
  void TakeCmdSn(const uint8_t* header);
  Task* FindTask(const uint8_t* header);
  bool Complete(Task* task);
  void Finish(Task* task);
  __attribute__((format(printf, 2, 3))) bool Violation(const char* format, ...);

  // Output.
  void FillBatch();
  void AddPdu(const Header& header, const char* data, uint32_t length);
  void SendNext(Task* task);
  Header CommandHeader(const Task* task, bool final) const;
  Header DataOutHeader(Task* task, uint32_t length) const;
  void EndBatch();
  void QueueForSending(Task* task);
  void Unqueue(Task* task);
  Header* NewControl(Opcode opcode, uint32_t tag);
  void SendLogin();

  const Connection& connection_;
  SessionHandler* const handler_;
  Login login_;
  bool full_feature_ = false, broken_ = false, refused_ = false;
  bool resetting_ = false, pinging_ = false, logging_out_ = false;  // an answer is due
  Reason failure_;

  std::vector<Task> tasks_;
  std::vector<uint32_t> free_;  // indexes of tasks, as a stack
  uint32_t uses_ = 0;           // makes tags of one slot differ
  uint32_t cmd_sn_ = 1, max_cmd_sn_ = 1, exp_cmd_sn_ = 1, exp_stat_sn_ = 0;
  uint32_t unsent_commands_ = 0;

  std::unique_ptr<uint8_t[]> input_;
  size_t input_begin_ = 0, input_end_ = 0;
  bool large_data_ = false;  // came last, so that more of it is likely: only its header goes to input_
  struct {
    Task* task = nullptr;  // nullptr: none under way
    Header header;
    uint32_t left = 0;
  } data_in_;

  Task* send_head_ = nullptr;
  Task* send_tail_ = nullptr;
  Task* early_ = nullptr;  // done, but with data in the batch
  struct Control {
    Header header;
    bool login;  // carries the login's text
  };
  std::array<Control, kControls> controls_;
  size_t control_count_ = 0;
  std::array<Header, kBatchPdus> headers_;
  std::array<iovec, 3 * kBatchPdus> pieces_;
  int pdus_ = 0, pieces_begin_ = 0, pieces_end_ = 0;
  uint32_t batch_ = 1;
};

}  // namespace lunkeeper::iscsi
