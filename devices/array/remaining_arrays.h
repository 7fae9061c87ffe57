#pragma once
// The configured arrays but for the ones that an operator removed (`lunkeeper remove-array`): to everybody
// who sees the arrays through this, a removed one is configured no more. Which ones were removed is stored
// elsewhere; SetRemoved tells. Thread-safe.

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

  void SetRemoved(std::set<std::string> names) {
    absl::MutexLock lock(&mutex_);
    removed_ = std::move(names);
  }
  std::set<std::string> ListRemoved() const {
    absl::MutexLock lock(&mutex_);
    return removed_;
  }
  // With the removed ones.
  Arrays& configured() const { return *configured_; }

 private:
  const std::shared_ptr<Arrays> configured_;
  mutable absl::Mutex mutex_;
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
