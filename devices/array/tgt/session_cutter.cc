#include "devices/array/tgt/session_cutter.h"

#include "base/fail_point.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// tgtd ends a session that was cut, and has no command, before it answers the next call.
constexpr std::chrono::seconds kLongestEnd(1);

}  // namespace

absl::StatusOr<std::vector<TgtConnection>> SessionCutter::CutListed(int32_t target) {
  ASSIGN_OR_RETURN(std::vector<TgtConnection> connections, tgt_->ListConnections(target));
  for (const TgtConnection& each : connections) {
    const absl::Status cut = tgt_->DeleteConnection(target, each);
    if (!absl::IsNotFound(cut)) RETURN_IF_ERROR(cut);
  }
  return connections;
}

absl::StatusOr<SessionsLeft> SessionCutter::CutSessions(int32_t target) {
  ASSIGN_OR_RETURN(const std::vector<TgtConnection> connections, CutListed(target));
  FAIL_POINT("array.target.connections_deleted");
  if (!connections.empty()) stuck_.EndStuck(connections);
  return ClassifyList(target, connections.empty());
}

void SessionCutter::Forget(int32_t target) {
  const absl::MutexLock lock(&mu_);
  ending_since_.erase(target);
}

SessionsLeft SessionCutter::ClassifyList(int32_t target, bool empty) {
  const absl::MutexLock lock(&mu_);
  if (empty) {
    ending_since_.erase(target);
    return SessionsLeft::kNone;
  }
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyTime& since = ending_since_.try_emplace(target, now).first->second;
  if (now - since < kLongestEnd) return SessionsLeft::kEnding;
  since = now;
  return SessionsLeft::kOverdue;
}

}  // namespace lunkeeper
