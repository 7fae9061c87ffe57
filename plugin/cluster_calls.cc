// By the steady clock: a wall clock that jumps must not make a cluster look silent. Readers count as well as
// controllers, since a cluster that is watched is one that somebody still needs. Nothing is stored: an agent
// that has just started says that it does not know, which is true, and knows soon.
#include "plugin/cluster_calls.h"

#include "absl/strings/str_cat.h"

namespace lunkeeper {

void ClusterCalls::NoteCall(const ClusterId& cluster) {
  const absl::MutexLock lock(&mu_);
  last_[cluster] = now_();
}

absl::Status ClusterCalls::CheckSilent(const ClusterId& cluster) const {
  const absl::MutexLock lock(&mu_);
  const Time now = now_();
  const auto since = [&](Time then) { return std::chrono::duration_cast<std::chrono::seconds>(now - then); };
  const auto last = last_.find(cluster);
  if (last != last_.end() && now - last->second < kSilence)
    return absl::FailedPreconditionError(absl::StrCat(
        "cluster ", cluster.value(), " called this agent ", since(last->second).count(),
        " s ago, so it lives. Nothing was changed: stop its controllers, and repeat this when they have been "
        "silent for ",
        kSilence.count(), " s"));
  if (now - started_ >= kSilence) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this agent runs for ", since(started_).count(), " s, and does not know yet whether cluster ",
      cluster.value(), " lives: repeat this in ", (kSilence - since(started_)).count(), " s"));
}

}  // namespace lunkeeper
