#pragma once
// One logical unit over iSCSI, as an event loop sees it: requests in, completions out, through failures of
// the network and of the target. Speaks RFC 7143 itself (one connection, CHAP, digests where asked for, error
// recovery level 0).
//
// Thread safety: none; one thread owns a Lun, its requests and its epoll set. Every call returns at once.
//
// Memory: everything is allocated by MakeLun; afterwards nothing is, since write-back of dirty pages may be
// what runs here (but for one small block inside the crypto library at each login with a secret).
//
// Ownership: a request and its data belong to the caller and stay put until `done`, which is called exactly
// once, from within OnReady, OnTimer, Fail or Close, never from Submit or SendQueued. `done` may Submit and
// free its own request; it may not call anything else here. LunState outlives the Lun, and the process where
// it lies in shared memory.
//
// Failure: a lost connection is not an error, nor is a wrong digest, which ends the connection. The Lun logs
// in again (after 100 ms, backing off to 1 s, both divided by the target's portals; at the next portal where
// a login fails or the connection fell silent), has the target confirm by a LUN reset that the old commands
// are over, and only then sends again, in the order of submission, what was not answered. A request that has
// ended eight sessions is answered with EIO. lun_connection.h says what else leads to another portal.
//
// Of several portals, one may be a gateway's that was shut out of the storage and does not know it yet: all
// that is asked of it fails. So an error of the medium ends the connection, and what failed is sent again
// through the next portal, until it has failed for `doubt_timeout`. This is for arrays that cache nothing
// (cache_ids.h): elsewhere an error may be of earlier writes, and comes only once.
//
// A LUN of another array does not show whether it has lost its cache. If it has one, nothing that is
// acknowledged stays in it: writes have FUA, or where the LUN does not honour that, each is followed by a
// flush before it is answered. An error of a write that was answered before (a deferred error) is the error
// of the next flush.
//
// It fails **for good**, with every request answered by EIO at once, when
//   - the target refuses the login (what a fenced or released grant looks like) at each of its portals, as
//     its last word since a login that worked: one alone may be a stranger's, or that of a gateway to come,
//   - it could not be logged in for `replacement_timeout` (a target that still carries out the old commands
//     and answers pings meanwhile is not away),
//   - the LUN is another one (serial), smaller, or of another block size than before,
//   - the storage host restarted (its boot id changed) while acknowledged writes were not yet flushed,
//   - Fail is called.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "devices/iscsi/lun_state.h"
#include "devices/iscsi/splice_pipe.h"
#include "devices/types.h"

namespace lunkeeper {

enum class LunOp : uint8_t {
  kRead,
  kWrite,
  kFlush,         // offset and length are ignored
  kDiscard,       // EOPNOTSUPP unless the LUN can unmap
  kWriteZeroes,   // EOPNOTSUPP unless the LUN has WRITE SAME(16)
  kReadCapacity,  // brings LunState::size_bytes up to date (it never shrinks)
};

struct LunRequest {
  LunOp op = LunOp::kRead;
  bool fua = false;      // writes: on the medium before they are answered
  uint64_t offset = 0;   // bytes; as length, a multiple of the block size and within the LUN, or EINVAL
  uint64_t length = 0;   // bytes; any length, split as the LUN needs it
  char* data = nullptr;  // kRead: filled; kWrite: sent from here, and again after a reconnect
  Delivery delivery;     // kRead; a hint
  void (*done)(LunRequest*) = nullptr;
  int error = 0;  // the result: 0, or an errno (EIO, EROFS, EOPNOTSUPP, EINVAL, ENOSPC)

  // The Lun's own, from Submit to `done`.
  struct {
    LunRequest* prev = nullptr;
    LunRequest* next = nullptr;
    uint64_t position = 0;  // bytes of `length` that are done
    uint64_t covers = 0;    // kFlush: how many cached writes there were when it was sent
    uint32_t span = 0;      // bytes of the command in flight
    uint32_t retries = 0;   // how often the LUN would not carry it out
    uint32_t losses = 0;    // sessions that ended while it was the oldest in flight
    std::chrono::steady_clock::time_point doubted_since = {};  // its first error that was not believed
    uint64_t doubted_to = 0;                                   // where the command that failed so ended
    std::chrono::steady_clock::time_point refused_since = {};  // the first time at any portal
    bool in_flight = false;                                    // else it waits to be sent
    bool syncing = false;                      // all of it is written, and has to reach the medium
    std::chrono::steady_clock::time_point at;  // when it was sent, or is to be
    std::chrono::steady_clock::time_point submitted;
  } internal;
};

struct LunOptions {
  Connection connection;    // portal: a numeric address, `10.0.0.5:3260` or `[fd00::5]:3260`
  std::string serial;       // what INQUIRY page 80h must answer; empty: anything
  uint64_t size_bytes = 0;  // the LUN is at least this large
  bool read_only = false;   // writes are answered with EROFS
  std::chrono::milliseconds replacement_timeout = std::chrono::seconds(120);
  // Of the attempt to connect, of the login, and of the questions after the reset, each.
  std::chrono::milliseconds login_timeout = std::chrono::seconds(10);
  // An unanswered command ends the connection; so does silence, after a third of this. A flush has no limit
  // of its own: as long as the target answers pings, how long it takes is the target's business (a page cache
  // may take minutes). The same holds for the LUN reset of a login, which waits for the flush before it.
  std::chrono::milliseconds command_timeout = std::chrono::seconds(30);
  // Where the target has another portal, a silent one is left after this, and so is one to which no
  // connection can be made. A false alarm costs a reconnect, so it allows for two lost packets.
  std::chrono::milliseconds path_timeout = std::chrono::seconds(2);
  // With several portals, and nothing cached, for how long an error of the medium is not believed: longer
  // than a gateway takes to take another one's place.
  std::chrono::milliseconds doubt_timeout = std::chrono::seconds(20);
  // The same for kDiscard and kWriteZeroes, whose work grows with their length.
  std::chrono::milliseconds bulk_command_timeout = std::chrono::minutes(5);
  uint32_t queue_depth = 64;  // commands in flight at most; further requests wait
};

class Lun {
 public:
  using Clock = std::chrono::steady_clock;
  struct Interest {
    // -1: no socket now. A new socket never replaces an old one within one call: -1 is seen between.
    int fd;
    uint32_t events;  // EPOLLIN, EPOLLOUT
  };

  virtual ~Lun() = default;  // drops the connection; no request may be pending

  // Begins to log in. Once, before anything else. Ready, or failed, when LunState says so.
  virtual void Start() = 0;
  // What to wait for; may change in every call below, so the caller re-arms after each batch of calls.
  // Level-triggered.
  virtual Interest interest() const = 0;
  // Socket I/O: receives, completes, sends. Harmless at any time and cheap (one recv) when nothing is there,
  // so a loop may spin on it.
  virtual void OnReady() = 0;
  // When to call OnTimer at the latest; in the past: at once; time_point::max(): never.
  virtual Clock::time_point NextDeadline() const = 0;
  virtual void OnTimer(Clock::time_point now) = 0;

  // Queues a request; nothing is sent before SendQueued (or OnReady).
  virtual void Submit(LunRequest* request) = 0;
  // Sends what was submitted, in as few system calls as possible.
  virtual void SendQueued() = 0;

  // Answers everything, now and from now on, with EIO. `reason` is for people. Works without the target.
  virtual void Fail(const std::string& reason) = 0;
  // Fails what is pending and logs out: kClosed at most a second later, if the calls above go on until then.
  virtual void Close() = 0;
};

// `state` belongs to this LUN alone and outlives it.
std::unique_ptr<Lun> MakeLun(LunOptions options, LunState* state);

}  // namespace lunkeeper
