#pragma once
// Which gateway serves an array on Ceph, and how it came to have it. Plain values, for people: nothing is
// decided by them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lunkeeper {

enum class GatewayChange {
  kUnknown,   // a newer agent's word
  kFirst,     // nobody had the array before
  kRestart,   // the same gateway's agent was started again
  kTakeover,  // the one before had fallen silent, and was shut out
  kHandover,  // the one before gave it away, as planned or since it could not serve it
};

struct GatewayState {
  struct Phase {
    std::string name;  // silence, shut_out, catalogue or targets
    absl::Duration took;
    friend bool operator==(const Phase&, const Phase&) = default;
  };

  std::string host = {};    // where it runs
  uint64_t epoch = 0;       // rises with each gateway that takes the array
  std::string before = {};  // the host that had the array until then
  GatewayChange change = GatewayChange::kUnknown;
  absl::Time since = absl::UnixEpoch();              // it serves, by its own clock
  absl::Duration served_for = absl::ZeroDuration();  // by no clock that can be set
  // What came before that, one after the other. `silence` is that of the gateway before, of a takeover alone.
  std::vector<Phase> phases = {};
  friend bool operator==(const GatewayState&, const GatewayState&) = default;
};

struct ArrayGateway {
  std::string array;
  GatewayState state;
};

inline const char* ToText(GatewayChange change) {
  switch (change) {
    case GatewayChange::kFirst:
      return "first";
    case GatewayChange::kRestart:
      return "restart";
    case GatewayChange::kTakeover:
      return "takeover";
    case GatewayChange::kHandover:
      return "handover";
    case GatewayChange::kUnknown:
      break;
  }
  return "unknown";
}

// Whether another gateway has the array than before.
inline bool IsMove(GatewayChange change) {
  return change == GatewayChange::kTakeover || change == GatewayChange::kHandover;
}

// "array rack1 is served by gateway b since …": a sentence.
std::string DescribeGateway(const ArrayGateway& gateway);

}  // namespace lunkeeper
