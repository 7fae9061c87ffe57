#pragma once
// The configured arrays but for the ones that an operator removed (`lunkeeper remove-array`): to everybody
// who sees the arrays through this, a removed one is configured no more. Which ones were removed is stored
// elsewhere (removal_record.h), and until that was read nothing of any array is used: a program that has just
// started would write to one that was removed. Thread-safe.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

// What is stored of removals.
struct RemovedNames {
  std::string record;                // which record: another one that is made in its place has another name
  std::set<std::string> removed;     // not used
  std::set<std::string> added_back;  // of these, the ones that soon will be: nodes end no I/O there any more
};

class RemainingArrays final : public Arrays {
 public:
  // For how long what was read is certain. An addition waits longer than that before anybody uses the array
  // (array_removal.h).
  static constexpr absl::Duration kCertainFor = absl::Seconds(3);

  explicit RemainingArrays(std::shared_ptr<Arrays> configured) : configured_(std::move(configured)) {}

  std::vector<NamedArray> ListArrays() override {
    std::vector<NamedArray> arrays = configured_->ListArrays();
    absl::MutexLock lock(&mutex_);
    std::erase_if(arrays, [this](const NamedArray& array)
                              ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return IsRemovedLocked(array.name); });
    return arrays;
  }
  bool IsRemoved(const std::string& name) override {
    absl::MutexLock lock(&mutex_);
    return IsRemovedLocked(name);
  }
  absl::Status CheckKnown() override {
    absl::MutexLock lock(&mutex_);
    if (!stored_.record.empty()) return absl::OkStatus();
    return absl::UnavailableError(
        "which arrays an operator removed has not been read from the Kubernetes API yet: trying again helps, "
        "unless the controller's log says that the record is gone");
  }

  // `read_at`: by RealExecutor's steady clock, before it was read. What an earlier record had and this one
  // has not, nobody has added back: it stays removed until this record has had it too.
  void SetRemoved(RemovedNames stored, absl::Duration read_at) {
    absl::MutexLock lock(&mutex_);
    if (stored.record != stored_.record) lost_.insert(stored_.removed.begin(), stored_.removed.end());
    for (const std::string& name : stored.removed) lost_.erase(name);
    stored_ = std::move(stored);
    read_at_ = read_at;
  }
  // The arrays of a record which is gone that the record in its place does not have.
  std::set<std::string> ListLost() const {
    absl::MutexLock lock(&mutex_);
    return lost_;
  }
  // For what cannot be undone. None while that may have changed: one may have been added back.
  std::set<std::string> ListCertainlyRemoved() const {
    absl::MutexLock lock(&mutex_);
    if (RealExecutor().SteadyNow() - read_at_ >= kCertainFor) return {};
    std::set<std::string> certain = stored_.removed;
    for (const std::string& name : stored_.added_back) certain.erase(name);
    return certain;
  }
  // With the removed ones.
  Arrays& configured() const { return *configured_; }

 private:
  bool IsRemovedLocked(const std::string& name) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stored_.removed.contains(name) || lost_.contains(name);
  }

  const std::shared_ptr<Arrays> configured_;
  mutable absl::Mutex mutex_;
  RemovedNames stored_ ABSL_GUARDED_BY(mutex_);  // its record is empty: not read yet
  std::set<std::string> lost_ ABSL_GUARDED_BY(mutex_);
  absl::Duration read_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace lunkeeper
