#pragma once
// A small iSCSI target for tests that misbehaves on demand. It serves one disk in memory to one connection at
// a time, on its own thread and a free port of 127.0.0.1. Thread-safe from when it is made until it goes.
//
// A `Script` decides what becomes of each command. Writes it holds are applied when the next LUN reset
// arrives, as a slow target's are, which is what makes a replay that does not wait for the reset visible.

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "devices/iscsi/pdu.h"
#include "devices/iscsi/testing/fake_disk.h"
#include "devices/types.h"

namespace lunkeeper::iscsi {

struct FakeCommand {
  uint8_t operation = 0;  // SCSI operation code
  uint64_t lba = 0;
  uint32_t blocks = 0;
  int session = 0;  // 1 for the first login
  bool fua = false;
};

struct Reaction {
  enum Kind {
    kAnswer,
    kStatus,   // `status` and, with it, sense data
    kHold,     // no answer; a write is applied at the next reset
    kDrop,     // the connection is closed
    kHalf,     // half an answer, then the connection is closed
    kTrickle,  // a read's data come in 16 pieces, one each 60 ms
    kRaw,      // `raw` is sent instead of an answer
    kSilence,  // nothing is read or sent any more on this connection
    kTell,     // the asynchronous message `raw` comes, and then the answer
    kPings,    // answered, by `status` if there is one, only after `pings` pings: slow, and alive
  };
  Kind kind = kAnswer;
  uint8_t status = 0, key = 0, asc = 0, ascq = 0;
  std::vector<uint8_t> raw = {};
  int pings = 0;
  bool deferred = false;  // the sense data are of an earlier command
};
inline Reaction AfterPings(int pings) { return {.kind = Reaction::kPings, .raw = {}, .pings = pings}; }
inline Reaction Sense(uint8_t key, uint8_t asc = 0, uint8_t ascq = 0) {
  return {Reaction::kStatus, 2, key, asc, ascq, {}, 0, false};
}

class FakeTarget {
 public:
  static constexpr uint32_t kBlock = FakeDisk::kBlockSize;
  using Script = std::function<Reaction(const FakeCommand&)>;

  // What the disk and the target are like; to be changed with Change.
  struct Traits : FakeDisk {
    uint32_t window = 32;  // commands
    uint8_t login_class = 0, login_detail = 0;
    std::string moved_to = {};               // with class 1
    std::vector<uint8_t> login_answer = {};  // instead, with the request's tag
    uint16_t seconds_to_wait = 0;            // after a logout
    bool logout_silent = false;              // it is not answered
    uint8_t reset_response = 0;
    bool reset_drops = false;   // the connection is closed instead of answering the reset
    bool reset_silent = false;  // neither the reset nor anything else is answered any more
    int reset_pings = 0;        // the reset is answered after so many pings
    Script script;
  };

  // `open`: else its port refuses connections until Open.
  explicit FakeTarget(bool open = true);
  ~FakeTarget();
  void Open();

  std::string portal() const { return "127.0.0.1:" + std::to_string(port_); }
  void Change(const std::function<void(Traits&)>& change);
  // What happened so far: "login", "reset", "write 8", "apply 8" …
  std::vector<std::string> Events();
  size_t Count(const std::string& event);
  // Sends `bytes` on the present connection; closes it if they are empty.
  void Inject(const std::vector<uint8_t>& bytes);
  char At(uint64_t offset);
  int connections() const { return connections_; }

 private:
  struct Pdu {
    Header header;
    std::vector<uint8_t> data;
  };

  void Serve();
  void ServeConnection(int fd);
  std::optional<Pdu> Read(int fd);
  std::optional<Pdu> Next(int fd);  // as Read, but what was set aside first
  bool Handle(int fd, const Pdu& pdu);
  bool HandleLogin(int fd, const Pdu& pdu);
  bool HandleReset(int fd, const Pdu& pdu);
  bool FinishReset(int fd, const Pdu& pdu);
  bool HandlePing(int fd, const Pdu& pdu);
  bool HandleLogout(int fd, const Pdu& pdu);
  bool Tell(int fd, const Pdu& pdu, const std::vector<uint8_t>& message);
  bool HandleCommand(int fd, const Pdu& pdu);
  bool GatherData(int fd, const Pdu& command, std::vector<uint8_t>& data);
  bool React(int fd, const Pdu& pdu, const FakeCommand& command, const Reaction& reaction);
  bool Execute(int fd, const Pdu&, const FakeCommand&, const std::vector<uint8_t>& data, Reaction::Kind how);
  bool SendData(int fd, const Pdu& pdu, const std::vector<uint8_t>& data, Reaction::Kind how);
  bool SendStatus(int fd, const Pdu& pdu, const Reaction& reaction);
  Header Respond(Opcode opcode, const Pdu& pdu, bool status);
  bool Send(int fd, Header header, const std::vector<uint8_t>& data);
  Traits traits();
  void Note(const std::string& event);
  void Apply(const FakeCommand& command, const std::vector<uint8_t>& data);

  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stop_ = false;

  // Of the serving thread.
  uint32_t stat_sn_ = 1, exp_cmd_sn_ = 1;
  int sessions_ = 0;
  std::deque<Pdu> aside_;
  struct Held {
    FakeCommand command;
    std::vector<uint8_t> data;
  };
  std::vector<Held> held_;
  struct Slow {
    int pings;  // still to come
    Pdu pdu;
    Held held;
    Reaction reaction;
  };
  std::vector<Slow> slow_;

  absl::Mutex mutex_;
  Traits traits_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<char> medium_ ABSL_GUARDED_BY(mutex_);
  int current_ ABSL_GUARDED_BY(mutex_) = -1;
  std::thread thread_;
};

}  // namespace lunkeeper::iscsi
