// Callers' threads pick replicas under the mutex and make blocking calls without it: connected ones first,
// what failed lately last, and all of them again after a pause, until one answers or the time is over.
#include "fencing/agent/replica_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

// A replica names one for as long as that asks it, and for 15 s more.
constexpr absl::Duration kNamedFor = absl::Seconds(15);
constexpr size_t kMostReplicas = 32;  // what others name opens no more connections than this
// Long enough not to flood controllers that are starting, short enough that a mount does not notice.
constexpr absl::Duration kPauseBetweenRounds = absl::Milliseconds(200);
constexpr absl::Duration kFirstNames = absl::Milliseconds(10);  // a plugin that starts has none for a moment
// One that does not reach the array that a call is about takes its time to say so, for each call.
constexpr absl::Duration kAskedLast = absl::Seconds(10);
constexpr absl::Duration kLongestCall = absl::Hours(24);  // whatever the caller would wait

// Whether the status of a call comes from gRPC or the network, and not from a replica's handler. Such a call
// may be repeated at another replica; all calls of the protocol are idempotent.
bool IsUnanswered(const CallOutcome& outcome) {
  const absl::Status& status = outcome.status;
  // Replicas say UNAVAILABLE themselves while they stop, or when they cannot reach what they need. Nobody on
  // this side cancels a call, so CANCELLED means that the replica was stopped while it handled the call.
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return true;
  // A replica whose wait for a grant was in vain says DEADLINE_EXCEEDED, and so does gRPC when a replica is
  // silent. A replica that has no room for the call, or gRPC there, says RESOURCE_EXHAUSTED, and so does an
  // array for too many volumes. Only a replica's answer to the call itself has the mark.
  return (absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status)) && !outcome.is_answer;
}

// What became of the tries of a call that no replica has answered.
class Tries {
 public:
  void NoteTry(const ReplicaConnection& replica, const absl::Status& status, absl::Duration took) {
    std::string& outcome = outcomes_[replica.address];
    const bool ran_out = absl::IsDeadlineExceeded(status);
    // The last try may have had next to no time left, which says less than the one before.
    if (ran_out && took < kShortTry && !outcome.empty()) return;
    const bool is_silent = ran_out && replica.IsConnected();
    some_are_silent_ |= is_silent;
    outcome = is_silent
                  ? absl::StrCat("has the call, and was silent for ", absl::FormatDuration(Rounded(took)))
                  : std::string(status.message());
  }
  absl::Status ToStatus(const std::string& what, const std::string& configured) const {
    const std::string asked = absl::StrJoin(
        outcomes_, "; ", [](std::string* text, const std::pair<std::string, std::string>& outcome) {
          absl::StrAppend(text, outcome.first, ": ", outcome.second);
        });
    if (some_are_silent_) {
      return absl::UnavailableError(absl::StrCat(what, ": no controller answered in time (", asked,
                                                 "); one that is reached and silent mostly waits for an "
                                                 "array: see what its agent logs, and how many "
                                                 "grants it has for each tgtd"));
    }
    return absl::UnavailableError(absl::StrCat(what, ": no controller answers at ", configured, " (",
                                               outcomes_.empty() ? "their names lead nowhere" : asked,
                                               "); see that the controllers run and that this node reaches "
                                               "them"));
  }

 private:
  static constexpr absl::Duration kShortTry = absl::Seconds(1);
  static absl::Duration Rounded(absl::Duration took) { return absl::Trunc(took, absl::Milliseconds(100)); }

  std::map<std::string, std::string> outcomes_;  // by the replica's address
  bool some_are_silent_ = false;
};

}  // namespace

void ReplicaTable::NoteResolved(const std::map<std::string, std::string>& found, bool complete) {
  SteadyLock lock(&mutex_);
  for (const auto& [address, name] : found) {
    auto& replica = replicas_[address].replica;
    if (replica == nullptr) replica = connect_(address, name);
  }
  // An address goes only when every name was resolved: a name server that fails must not cost us replicas.
  if (!complete) return;
  const absl::Duration now = executor_.SteadyNow();
  std::erase_if(replicas_, [&](const auto& each) {
    const auto& named_at = each.second.named_at;
    return !found.contains(each.first) && (!named_at || now - *named_at >= kNamedFor);
  });
}

void ReplicaTable::NoteNamed(const std::string& address, const std::string& name) {
  SteadyLock lock(&mutex_);
  if (replicas_.size() >= kMostReplicas && !replicas_.contains(address)) return;
  auto& entry = replicas_[address];
  if (entry.replica == nullptr) {
    entry.replica = connect_(address, name);
    LogInfo("agent", "another controller names this one", {{"address", address}});
  }
  entry.named_at = executor_.SteadyNow();
}

ReplicaTable::Replicas ReplicaTable::ListReplicas() {
  Replicas fine, failed;
  {
    SteadyLock lock(&mutex_);
    const absl::Duration now = executor_.SteadyNow();
    for (const auto& [address, entry] : replicas_) {
      const bool failed_now = entry.failed_at && now - *entry.failed_at < kAskedLast;
      (failed_now ? failed : fine).push_back(entry.replica);
    }
  }
  fine.insert(fine.end(), failed.begin(), failed.end());
  std::stable_partition(fine.begin(), fine.end(), [](const auto& replica) { return replica->IsConnected(); });
  return fine;
}

void ReplicaTable::AwaitReplicas(absl::Time deadline) {
  SteadyLock lock(&mutex_);
  const auto known = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !replicas_.empty(); };
  mutex_.AwaitUntil(absl::Condition(&known), SteadyDeadline(deadline));
}

void ReplicaTable::NoteOutcome(const std::string& address, bool answered) {
  SteadyLock lock(&mutex_);
  const auto entry = replicas_.find(address);
  if (entry == replicas_.end()) return;
  entry->second.failed_at = answered ? std::nullopt : std::make_optional(executor_.SteadyNow());
}

absl::Status ReplicaTable::CallAny(const std::string& what, absl::Duration within, const Call& call) {
  Tries tries;
  // A clock that is set back meanwhile must not keep the caller: a heartbeat to an array may wait for this.
  const absl::Duration end = executor_.SteadyNow() + std::clamp(within, absl::ZeroDuration(), kLongestCall);
  const auto left = [this, end] { return end - executor_.SteadyNow(); };
  while (left() > absl::ZeroDuration()) {
    const Replicas replicas = ListReplicas();
    for (const auto& replica : replicas) {
      // One that there is no time left to ask has not failed: it is to be asked first the next time.
      if (left() <= absl::ZeroDuration()) break;
      const absl::Duration began = executor_.SteadyNow();
      const CallOutcome outcome = call(*replica, left());
      const bool answered = !IsUnanswered(outcome);
      NoteOutcome(replica->address, answered);
      if (answered) return outcome.status;
      tries.NoteTry(*replica, outcome.status, executor_.SteadyNow() - began);
    }
    executor_.MakeSignal()->WaitFor(std::min(replicas.empty() ? kFirstNames : kPauseBetweenRounds, left()));
  }
  return tries.ToStatus(what, configured_);
}

}  // namespace lunkeeper
