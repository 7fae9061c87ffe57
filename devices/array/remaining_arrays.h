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
#include "devices/array/arrays.h"

namespace lunkeeper {

class RemainingArrays final : public Arrays {
 public:
  explicit RemainingArrays(std::shared_ptr<Arrays> configured) : configured_(std::move(configured)) {}

  std::vector<NamedArray> ListArrays() override {
    std::vector<NamedArray> arrays = configured_->ListArrays();
    absl::MutexLock lock(&mutex_);
    std::erase_if(arrays, [this](const NamedArray& array)
                              ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return removed_.contains(array.name); });
    return arrays;
  }
  bool IsRemoved(const std::string& name) override {
    absl::MutexLock lock(&mutex_);
    return removed_.contains(name);
  }
  absl::Status CheckKnown() override {
    absl::MutexLock lock(&mutex_);
    if (known_) return absl::OkStatus();
    return absl::UnavailableError(
        "which arrays an operator removed has not been read from the Kubernetes API yet: trying again helps");
  }

  void SetRemoved(std::set<std::string> names) {
    absl::MutexLock lock(&mutex_);
    removed_ = std::move(names);
  }
  // True: the last SetRemoved said all that is stored. False: it may have changed since.
  void SetCurrent(bool current) {
    absl::MutexLock lock(&mutex_);
    current_ = current;
    known_ = known_ || current;
  }
  // For what cannot be undone. None while that may have changed: one may have been added back.
  std::set<std::string> ListCertainlyRemoved() const {
    absl::MutexLock lock(&mutex_);
    return current_ ? removed_ : std::set<std::string>();
  }
  // With the removed ones.
  Arrays& configured() const { return *configured_; }

 private:
  const std::shared_ptr<Arrays> configured_;
  mutable absl::Mutex mutex_;
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);
  bool known_ ABSL_GUARDED_BY(mutex_) = false, current_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lunkeeper
