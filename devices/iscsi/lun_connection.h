#pragma once
// The TCP connection of a Lun, or of a BlockSession, which has one portal and large reads like any others.
// Moves bytes between its socket and the session, and large reads past the session straight to where they are
// wanted (splice_pipe.h). It decides nothing but which of the target's portals is next: the same one for as
// long as it is of use.
//
//   a portal says               | and the Lun
//   ----------------------------+---------------------------------------------------------------------------
//   login: the target moved     | goes there if that is another portal of the target, which the grant names
//   login: refused              | goes to the next one; fails when that is the last word of each
//   LUN: another one, or        | likewise: a gateway that has lost the array knows of no growth since
//     smaller than it was       |
//   login: not now              | goes to the next one
//   LUN: standby, unavailable,  | goes to the next one; requests wait as long as for a portal that is away
//     or none of this number    |
//   LUN: not ready, or busy     | repeats the command, and goes to the next one after some seconds; from a
//                               |   busy one only if it carries out nothing
//   message: log out, please    | ends what is in flight, logs out, and logs in here again
//   message: the session ends   | logs in here again, after the time that it asks for, within limits
//
// Where a target moved is followed once for each portal until a Lun was accepted, so that portals which send
// to each other keep nobody from a third.
//
// One thread; nothing allocates. The session outlives it. Errors are errnos; EPIPE: the target has closed it.

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/lun.h"
#include "devices/iscsi/socket.h"

namespace lunkeeper::iscsi {

class LunConnection {
 public:
  using Clock = Lun::Clock;

  // Of the other portals those count that are numeric addresses.
  LunConnection(const Connection& connection, InitiatorSession* session);

  bool has_address() const { return !portals_.empty(); }
  bool has_choice() const { return portals_.size() > 1; }
  // Not every portal has been tried since the last Lun that was accepted.
  bool in_first_round() const { return failures_ < portals_.size(); }
  // A Lun was accepted over this connection.
  void NoteSuccess();
  // The present portal has refused the login, or shows another LUN. Whether all have, each as its last word
  // since the last success, or have sent the login to another one: a single one may be somebody else's by
  // now, or a gateway's that has lost the array, or takes it a moment later.
  bool NoteRefusal();
  // As configured.
  const char* portal() const { return portals_[next_].text.c_str(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }

  // Begins to connect; 0 or an errno. Writable when that is over.
  int Open();
  // How long to wait before that, of a back-off for a single portal: so each is asked as often as if it were
  // the only one. One that has just opened is asked at once.
  Clock::duration PauseBeforeOpen(Clock::duration backoff) const;
  // Whether the connection is there now; an errno where the attempt has failed.
  struct Attempt {
    int error = 0;
    bool connected = false;
  };
  Attempt FinishOpen();
  // When to call FindOpenedPortal, if at all: from Open to the end of the login, and while a reset waits.
  Clock::time_point next_look() const;
  // Looks, without waiting, whether a portal that refused connections takes them now. True: it is the next
  // one after Close. Once for each time that it opens: one that was open all the time may lead to the same
  // slow target. While a reset waits, it looks at portals of other hosts alone.
  bool FindOpenedPortal(Clock::time_point now);
  bool has_opened_portal() const { return opened_.has_value(); }
  // The session's LUN reset waits for old commands, until EndReset or Open. From `late` on a portal of
  // another host is found, too, that was open all the time. Not one of the same host, ever: a target may
  // forget the first of two resets, and keep its session (docs/tgt.md).
  void BeginReset(Clock::time_point late) { reset_late_ = late; }
  void EndReset() { reset_late_.reset(); }
  // `leave_portal`: although it took the login, the next attempt is at another one.
  void Close(bool leave_portal = false);

  // Receives what is there and gives it to the session, which may then be broken; or as much as leaves other
  // LUNs their turn. Then has the socket sleep until enough is there for the next step.
  struct Received {
    bool any = false;
    int error = 0;  // an errno, behind what came
    const char* failure() const {
      return error == EPIPE ? "the target closed the connection" : std::strerror(error);
    }
  };
  Received ReceiveAll();
  // Whether more bytes wait in the socket than at the last call: the rest of a large read, whose arrival
  // wakes nobody up before it is whole.
  bool HasNewBytes();
  // Sends what the session has, as far as the socket takes it; 0 or an errno.
  int SendAll();
  // Something is left to send that the socket did not take.
  bool wants_write() const { return wants_write_; }

 private:
  // Receives once and gives it to the session's memory, but not to the session: the caller tells it by
  // TakeInput. Bytes, 0 if there are none now, or -errno. `woken_up`: something must have come, or the
  // connection has ended. `drained`: there was not more.
  ssize_t ReceiveOnce(bool woken_up, bool* drained);
  void AwaitEnough();
  LunRequest* DeliverableRequest() const;
  ssize_t DeliverData(LunRequest& request);
  static Attempt ResultOf(const UniqueFd& socket);
  size_t NextPortal();
  struct Portal;
  Clock::time_point LooksFrom(const Portal& portal) const;

  // What happened there is of the time since the last success.
  struct Portal {
    Address address;
    std::string text;
    bool of_peer;             // another host's than the connection's own portal
    bool refused = false;     // the last login, or the LUN was another one
    bool sent_on = false;     // the last login, to another portal
    bool closed = false;      // the last connection
    bool redirected = false;  // a login, and that was followed
    UniqueFd look = {};       // an attempt beside that at another portal
  };
  std::vector<Portal> portals_;  // empty: the connection's own portal is no address
  size_t next_ = 0;
  std::optional<size_t> opened_;  // found by FindOpenedPortal since the last Open
  Clock::time_point next_look_;
  std::optional<Clock::time_point> reset_late_;
  size_t failures_ = 0;                     // portals that were left since the last success
  bool tried_ = false, connected_ = false;  // of the attempt since the last Close
  InitiatorSession* const session_;
  UniqueFd socket_;
  bool wants_write_ = false;
  size_t readable_from_ = 1;  // bytes; see AwaitEnough
  size_t waiting_ = 0;        // likewise, in the socket at the last HasNewBytes
};

}  // namespace lunkeeper::iscsi
