#include "devices/array/tgt/empty_targets.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {

void EmptyTargets::Add(int32_t target) {
  const absl::MutexLock lock(&mu_);
  targets_.insert(target);
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
  std::set<int32_t> targets;
  {
    const absl::MutexLock lock(&mu_);
    targets = targets_;
  }
  for (const int32_t target : targets) {
    const absl::StatusOr<bool> gone = TryDelete(target);
    if (absl::IsUnavailable(gone.status())) return;  // and each further one would take as long to fail
    // A login that was half done may have become a session since the last cut.
    if (gone.ok() && !*gone) sessions_->CutSessions(target).status().IgnoreError();
    if (gone.ok() && *gone) sessions_->Forget(target);
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
