#include "devices/array/tgt/empty_targets.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {

void EmptyTargets::Add(int32_t target) {
  const absl::MutexLock lock(&mu_);
  targets_.try_emplace(target, std::chrono::steady_clock::now());
}

void EmptyTargets::KeepTarget(int32_t target) {
  const absl::MutexLock lock(&mu_);
  targets_.erase(target);
}

void EmptyTargets::ForgetAll() {
  const absl::MutexLock lock(&mu_);
  targets_.clear();
}

void EmptyTargets::DeleteAll() {
  std::map<int32_t, SteadyTime> targets;
  {
    const absl::MutexLock lock(&mu_);
    targets = targets_;
  }
  for (const auto& [target, since] : targets) {
    const absl::StatusOr<bool> gone = TryDelete(target);
    if (absl::IsUnavailable(gone.status())) return;  // and each further one would take as long to fail
    if (gone.ok() && !*gone) CutSessions(target, since);
    if (gone.ok() && *gone) sessions_->Forget(target);
  }
}

// A login that was half done may have become a session since the last cut.
void EmptyTargets::CutSessions(int32_t target, SteadyTime empty_since) {
  if (std::chrono::steady_clock::now() - empty_since < kEndsStuckFor) {
    sessions_->CutSessions(target).status().IgnoreError();
  } else {
    sessions_->CutListed(target).status().IgnoreError();
  }
}

// Holds the lock meanwhile, so that none is deleted after KeepTarget.
absl::StatusOr<bool> EmptyTargets::TryDelete(int32_t target) {
  const absl::MutexLock lock(&mu_);
  if (!targets_.contains(target)) return true;
  const absl::Status deleted = OkIfGone(tgt_->DeleteTarget(target));
  if (absl::IsFailedPrecondition(deleted)) return false;
  RETURN_IF_ERROR(deleted);
  targets_.erase(target);
  LogInfo("array", "the target without a LUN is gone", {{"target", absl::StrCat(target)}});
  return true;
}

}  // namespace lunkeeper
