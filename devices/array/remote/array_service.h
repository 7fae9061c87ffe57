#pragma once
// The array agent's gRPC service: what an Array does, for clients elsewhere (array.proto). It adds nothing to
// the array's own rules but who may do what: the client's certificate says (rights.h), and a reader is shown
// no secrets.
//
// Thread-safe. It keeps nothing between calls but the counts of waiting calls, so it may be killed at any
// line and every call may be repeated. A call ends when its client has gone; a call that waits for a grant
// then gets none. Failure: the array's, code and message unchanged; PERMISSION_DENIED as rights.h says;
// INVALID_ARGUMENT for a text that no client of ours sends; UNAVAILABLE when too many calls wait already or
// the agent stops. An agent that is not its array's now answers UNAVAILABLE without the array's name
// (array.proto), whatever the array has said to it: another agent may have changed the array since. So does
// one whose client knows a newer copy of the array's pool.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "devices/array/array.h"
#include "devices/array/gateway_state.h"
#include "devices/array/pool_identity.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/waiting_places.h"

namespace lunkeeper {

struct ArrayServiceOptions {
  std::string name;  // the array's
  // One cluster's view; never null.
  std::function<std::shared_ptr<Array>(const ClusterId&)> view;
  // OK, or UNAVAILABLE with what to do.
  std::function<absl::Status()> serving;
  // Asked after the work of each call: OK if nobody else served the array when the work was done. Empty:
  // nobody else can.
  std::function<absl::Status()> confirm;
  // Which copy of its pool the array is; nothing: it serves none yet. Empty: that is not known, and no call
  // is refused for it.
  std::function<std::optional<PoolIdentity>()> identity;
  // Which gateway serves the array, once it does. Empty: it has none.
  std::function<std::optional<GatewayState>()> gateway = nullptr;
  // Told with each call of a controller that knows one which copy that is. May be empty.
  std::function<void(const PoolIdentity&)> note_copy;
  // True: the agent is being stopped, and requests that wait are sent away with UNAVAILABLE. Empty: never.
  std::function<bool()> leaving;
  // OK, or why this certificate (PEM) is refused although it is signed. Empty: none is.
  std::function<absl::Status(const std::string&)> check_certificate;
  // Each waiting Acquire has a thread of the server; the others must find some left.
  WaitingLimits waiting = {};
};

std::unique_ptr<array::v1::ArrayService::Service> MakeArrayService(ArrayServiceOptions options);

}  // namespace lunkeeper
