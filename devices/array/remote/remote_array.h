#pragma once
// An Array on another machine, behind an array agent (array_service.h), over mutual TLS. It may have several
// agents, of which one serves it at a time, such as the gateways of an array on Ceph. A call asks the one
// that answered last, and the next one if that cannot be reached or does not serve the array.
//
// It connects when it is first used, and again by itself; a connection that hangs is noticed in seconds, and
// until there is another calls are refused at once. No call lasts longer than its deadline: `call_timeout`,
// for Acquire its wait and `wait_margin`, and for FindNamed and GetCapacity `search_timeout`. The array's own
// errors arrive unchanged. What the transport says becomes UNAVAILABLE, DEADLINE_EXCEEDED when the agent took
// the call and did not answer in time, or UNIMPLEMENTED when it is too old to know the call; all name the
// array and its address. The call may have been carried out all the same, and is to be repeated, as any. The
// secrets in grants travel in TLS alone.
//
// Thread-safe. Owns its connection; destroyed after the last call has returned.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls.h"
#include "devices/array/array.h"
#include "devices/array/gateway_state.h"

namespace lunkeeper {

struct RemoteArrayOptions {
  std::string name;                    // the agents' --name; another's agent refuses every call
  std::vector<std::string> addresses;  // host:port of each agent; one at least
  std::string server_name;             // in the agents' certificates; empty: the host of each address
  TlsFiles tls;
  absl::Duration call_timeout = absl::Seconds(60);  // longer than the agent's --drain-seconds
  absl::Duration wait_margin = absl::Seconds(10);
  absl::Duration search_timeout = absl::Seconds(3);
  absl::Duration copy_timeout = absl::Seconds(2);  // of several agents, each: which copy of the pool it has
  friend bool operator==(const RemoteArrayOptions&, const RemoteArrayOptions&) = default;
};

class RemoteArray : public Array {
 public:
  // OK when the agent answers and its array serves.
  virtual absl::Status CheckServing(absl::Duration timeout) = 0;
  // Which gateway serves it, as its agent says. Nothing: it has none, or its agent is of an older version.
  virtual absl::StatusOr<std::optional<GatewayState>> AskGateway(absl::Duration timeout) = 0;
};

// Does not connect yet. FAILED_PRECONDITION: TLS files that are not right.
absl::StatusOr<std::unique_ptr<RemoteArray>> MakeRemoteArray(const RemoteArrayOptions& options);
// Also with such files: all calls are UNAVAILABLE until they are right.
std::unique_ptr<RemoteArray> MakeUncheckedRemoteArray(const RemoteArrayOptions& options);

}  // namespace lunkeeper
