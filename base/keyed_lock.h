#pragma once
// At most one piece of work at a time for each key, without waiting: the second caller gets no guard.
//
//   const auto guard = locks_.TryLock(volume);
//   if (!guard) return absl::AbortedError(…);
//
// Thread-safe. The guard ends the work when it goes out of scope; the KeyedLock outlives its guards. Keys
// that are not locked take no memory.

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace lunkeeper {

class KeyedLock {
 public:
  class Guard {
   public:
    Guard(KeyedLock* owner, std::string key) : owner_(owner), key_(std::move(key)) {}
    Guard(Guard&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), key_(std::move(other.key_)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (owner_ != nullptr) owner_->Unlock(key_);
    }

   private:
    KeyedLock* owner_;
    std::string key_;
  };

  // nullopt: the key is locked already.
  std::optional<Guard> TryLock(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (!held_.insert(key).second) return std::nullopt;
    return Guard(this, key);
  }

 private:
  void Unlock(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    held_.erase(key);
  }

  absl::Mutex mu_;
  absl::flat_hash_set<std::string> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
