#include "devices/array/tgt/session_cutter.h"

#include <set>
#include <string>
#include <vector>

#include "base/fail_point.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// tgtd ends a session that was cut, and has no command, before it answers the next call.
constexpr std::chrono::seconds kLongestEnd(1);
// As often overdue, a node that takes its answers slowly is no better than one that takes none.
constexpr int kMostOverdue = 5;

}  // namespace

absl::StatusOr<SessionsLeft> SessionCutter::CutSessions(int32_t target) {
  ASSIGN_OR_RETURN(const std::vector<TgtConnection> connections, tgt_->ListConnections(target));
  for (const TgtConnection& each : connections) {
    const absl::Status cut = tgt_->DeleteConnection(target, each);
    if (!absl::IsNotFound(cut)) RETURN_IF_ERROR(cut);
  }
  FAIL_POINT("array.target.connections_deleted");
  if (connections.empty()) {
    Forget(target);
    return SessionsLeft::kNone;
  }
  const auto [overdue, left] = ClassifyList(target);
  EndStuck(connections, overdue);
  return left;
}

void SessionCutter::Forget(int32_t target) {
  const absl::MutexLock lock(&mu_);
  ending_.erase(target);
}

std::pair<int, SessionsLeft> SessionCutter::ClassifyList(int32_t target) {
  const absl::MutexLock lock(&mu_);
  const SteadyTime now = std::chrono::steady_clock::now();
  Ending& ending = ending_.try_emplace(target, Ending{now}).first->second;
  if (now - ending.since < kLongestEnd) return {ending.overdue, SessionsLeft::kEnding};
  ending.since = now;
  return {++ending.overdue, SessionsLeft::kOverdue};
}

void SessionCutter::EndStuck(const std::vector<TgtConnection>& connections, int overdue) {
  const absl::StatusOr<pid_t> tgtd = tgt_->FindProcess();
  if (!tgtd.ok()) return;
  if (overdue == 0) return stuck_.NoteProgress(*tgtd);
  std::set<std::string> peers;
  for (const TgtConnection& each : connections) peers.insert(each.address);
  stuck_.ShutDown(*tgtd, peers, overdue > kMostOverdue);
}

}  // namespace lunkeeper
