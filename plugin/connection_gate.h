#pragma once
// Accepts the TCP connections of a gRPC server, and bounds what one peer can cost it. gRPC 1.51 limits
// neither connections nor what a peer may send before it is known, and stops accepting for good once
// descriptors run out (docs/security.md lists these weaknesses). So the gate listens in gRPC's place and
// hands sockets over:
//
//   refused   its address has too many connections, opens them too fast, or is shut out
//   unknown   accepted; no call of it was answered well. It may send little, and not for long
//   known     a call was answered well. It may send more, and needs another such call from time to time
//   ended     it sent too much or called wrongly too often, and its address is shut out for some seconds
//
// The limits are by address because a stranger has one address and many ports. Known connections of an
// address that is shut out go on.
//
// Thread-safe. Threads of its own accept, hand over, and look at the connections; NoteGood and NoteBad never
// block for longer than a look. The gate keeps a duplicate of each descriptor, so it ends a connection
// without gRPC, and sees when gRPC has closed it. Failure: UNAVAILABLE, the address cannot be listened on.
// The destructor stops it and waits for what is being handed over.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct ConnectionLimits {
  size_t connections = 15'000;
  size_t per_address = 16;
  // New connections of an address: so many at once, and then so many a second.
  double new_at_once = 64, new_per_second = 8;
  // What a connection may send before it is known; and afterwards within a quarter of a second, or without
  // another call that is answered well.
  int64_t bytes_unknown = 64 << 10, bytes_known = 256 << 10;
  absl::Duration time_unknown = absl::Seconds(20);
  // Calls of one connection that may be wrong, one after another; 0: any number.
  int bad_calls = 64;
  absl::Duration shut_out = absl::Seconds(10);
};

class ConnectionGate {
 public:
  // Called on threads of the gate, and may take its time.
  using HandOver = std::function<void(UniqueFd)>;

  // `address` is host:port; an empty host, 0.0.0.0 and [::] are all addresses. `metrics` outlives the gate.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Open(const std::string& address,
                                                              const ConnectionLimits& limits,
                                                              Metrics* metrics);
  virtual ~ConnectionGate() = default;

  // Where it really listens, for an address whose port was 0.
  virtual int port() const = 0;
  // Begins to accept. Called once.
  virtual void Start(HandOver hand_over) = 0;
  // Listens no more and hands nothing over; connections stay with gRPC, and are still looked at. May be
  // repeated, and is called by one thread.
  virtual void Stop() = 0;
  // A call of this peer was answered well, or badly. The name is gRPC's: grpc::ServerContext::peer().
  virtual void NoteGood(const std::string& peer) = 0;
  virtual void NoteBad(const std::string& peer) = 0;
};

}  // namespace lunkeeper
