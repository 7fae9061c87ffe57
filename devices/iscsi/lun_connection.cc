// Two ways lead from the socket. The usual one is a receive into the places that the session names (its
// buffer, or a read's memory), and TakeInput then says how much came. The other is for a whole large
// read whose data come next: they go through a pipe to the FUSE device, and TakeInput counts them as if
// it had received them. Both must leave the session with the same count of bytes, or it would take data for a
// header.

#include "devices/iscsi/lun_connection.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lunkeeper::iscsi {
namespace {

constexpr std::chrono::milliseconds kLookInterval(100);
// So that one busy LUN does not starve the others of its loop.
constexpr int kReceivesPerCall = 16;

}  // namespace

LunConnection::LunConnection(const Connection& connection, InitiatorSession* session) : session_(session) {
  const std::optional<Address> own = ParseAddress(connection.portal);
  if (!own) return;
  portals_.push_back({.address = *own, .text = connection.portal, .of_peer = false});
  for (const std::string& portal : connection.other_portals)
    if (const std::optional<Address> other = ParseAddress(portal))
      portals_.push_back({.address = *other,
                          .text = portal,
                          .of_peer = std::ranges::count(connection.peer_portals, portal) > 0});
}

void LunConnection::NoteSuccess() {
  for (Portal& portal : portals_) portal.refused = portal.sent_on = portal.closed = portal.redirected = false;
  failures_ = 0;
}

bool LunConnection::NoteRefusal() {
  portals_[next_].refused = true;
  return std::ranges::all_of(portals_, [](const Portal& portal) { return portal.refused || portal.sent_on; });
}

LunConnection::Clock::duration LunConnection::PauseBeforeOpen(Clock::duration backoff) const {
  return opened_ ? Clock::duration::zero() : backoff / static_cast<int64_t>(portals_.size());
}

LunConnection::Clock::time_point LunConnection::next_look() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Portal& portal : portals_) first = std::min(first, LooksFrom(portal));
  return std::max(first, next_look_);
}

// From when on to look at `portal`; max: never. Which peers are one host nobody knows: of two, either may
// be where the reset waits.
LunConnection::Clock::time_point LunConnection::LooksFrom(const Portal& portal) const {
  const Portal& present = portals_[next_];
  const bool logs_in = !(connected_ && session_->logged_in());
  const bool may_serve = logs_in ? portal.closed : reset_late_ && portal.of_peer != present.of_peer;
  if (!is_open() || &portal == &present || !may_serve) return Clock::time_point::max();
  return portal.closed ? Clock::time_point() : *reset_late_;
}

// A look that is not answered yet goes on: a slow network is no reason to begin anew.
bool LunConnection::FindOpenedPortal(Clock::time_point now) {
  if (now < next_look()) return false;
  next_look_ = now + kLookInterval;
  for (size_t at = 0; at < portals_.size() && !opened_; ++at) {
    Portal& portal = portals_[at];
    if (now < LooksFrom(portal)) continue;
    const Attempt seen = portal.look ? ResultOf(portal.look) : Attempt{.error = ENOTCONN};
    if (seen.connected) opened_ = at;
    if (seen.error != 0) portal.look = OpenSocket(portal.address);
  }
  return opened_.has_value();
}

int LunConnection::Open() {
  socket_ = OpenSocket(portals_[next_].address);
  readable_from_ = 1;
  opened_.reset();
  reset_late_.reset();
  next_look_ = {};  // at once
  tried_ = true;
  connected_ = false;
  const int error = socket_ ? 0 : errno;
  portals_[next_].closed = error == ECONNREFUSED;
  portals_[next_].refused = portals_[next_].sent_on = false;
  return error;
}

LunConnection::Attempt LunConnection::ResultOf(const UniqueFd& socket) {
  const int error = ConnectResult(socket.get());
  if (error != 0) return {.error = error};
  // No error also means "not yet": only a connected socket has a peer.
  sockaddr_storage peer;
  socklen_t size = sizeof peer;
  return {.connected = ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0};
}

LunConnection::Attempt LunConnection::FinishOpen() {
  const Attempt attempt = ResultOf(socket_);
  connected_ = attempt.connected;
  portals_[next_].closed = attempt.error == ECONNREFUSED;
  return attempt;
}

size_t LunConnection::NextPortal() {
  const std::string_view named = connected_ ? session_->moved_to() : "";
  const auto is_named = [named](const Portal& portal) { return IsTargetAddress(portal.address, named); };
  const auto found = std::ranges::find_if(portals_, is_named);
  Portal& portal = portals_[next_];
  portal.sent_on = found != portals_.end() && &*found != &portal;
  if (opened_) return *opened_;
  if (found != portals_.end() && !std::exchange(portal.redirected, true))
    return static_cast<size_t>(found - portals_.begin());
  return (next_ + 1) % portals_.size();
}

void LunConnection::Close(bool leave_portal) {
  // What the session says is of this connection only if there was one.
  const bool worked = connected_ && session_->logged_in();
  if (tried_ && (leave_portal || !worked)) {
    next_ = NextPortal();
    ++failures_;
  }
  for (Portal& portal : portals_) portal.look.Reset();
  tried_ = false;
  socket_.Reset();
  wants_write_ = false;
}

// A short receive has drained the socket, which saves the one that would find nothing.
LunConnection::Received LunConnection::ReceiveAll() {
  Received received;
  bool drained = false;
  for (int i = 0; i < kReceivesPerCall && !drained && !session_->broken(); ++i) {
    const ssize_t got = ReceiveOnce(i == 0, &drained);
    if (got == 0) break;
    if (got < 0) {
      received.error = static_cast<int>(-got);
      return received;
    }
    received.any = true;
    session_->TakeInput(static_cast<size_t>(got));
  }
  AwaitEnough();
  return received;
}

ssize_t LunConnection::ReceiveOnce(bool woken_up, bool* drained) {
  if (LunRequest* request = DeliverableRequest()) {
    if (AvailableBytes(socket_.get()) >= request->length) return DeliverData(*request);
    if (!woken_up) return 0;  // we are when all of it is here
  }
  iovec space[2];
  const int count = session_->InputSpace(space);
  const ssize_t got = ReceiveBytes(socket_.get(), space, count);
  *drained = got < static_cast<ssize_t>(space[0].iov_len + (count > 1 ? space[1].iov_len : 0));
  return got;
}

// The request whose data come next and need not come through this process's memory. Only a whole request: a
// part could not be answered on its own.
LunRequest* LunConnection::DeliverableRequest() const {
  const Task* task = session_->WholeData();
  if (task == nullptr || task->owner == nullptr) return nullptr;
  auto* request = static_cast<LunRequest*>(task->owner);
  const SplicePipe* pipe = request->delivery.splice_pipe;
  const bool takes = pipe != nullptr && request->length == task->length && pipe->TakesSize(task->length);
  return takes ? request : nullptr;
}

ssize_t LunConnection::DeliverData(LunRequest& request) {
  Delivery& delivery = request.delivery;
  const SplicePipe::Result result = delivery.splice_pipe->PassThrough(
      socket_.get(), request.length, delivery.preface, delivery.sink, request.data);
  if (result.outcome == SplicePipe::Outcome::kLost) return -EIO;  // the read is sent again
  delivery.done = result.outcome == SplicePipe::Outcome::kDelivered;
  return static_cast<ssize_t>(delivery.done ? request.length : result.kept);
}

// To be woken up for each segment of a large transfer costs both sides more than the transfer.
void LunConnection::AwaitEnough() {
  if (!socket_) return;
  const LunRequest* whole = DeliverableRequest();
  const size_t bytes = whole != nullptr ? whole->length : session_->awaited_bytes();
  if (bytes == readable_from_) return;
  readable_from_ = bytes;
  ReadableFrom(socket_.get(), bytes);
}

bool LunConnection::HasNewBytes() {
  const size_t now = is_open() ? AvailableBytes(socket_.get()) : 0;
  return std::exchange(waiting_, now) < now;
}

int LunConnection::SendAll() {
  wants_write_ = false;
  while (true) {
    const iovec* pieces;
    const int count = session_->OutputPieces(&pieces);
    if (count == 0) return 0;
    const ssize_t sent = SendBytes(socket_.get(), pieces, count);
    if (sent < 0) return static_cast<int>(-sent);
    if (sent == 0) {
      wants_write_ = true;
      return 0;
    }
    session_->MarkSent(static_cast<size_t>(sent));
  }
}

}  // namespace lunkeeper::iscsi
