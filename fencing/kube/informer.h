#pragma once
// An in-memory cache of one kind of Kubernetes object, kept current by list and watch (client-go calls this
// an informer). The caller's `reduce` shrinks each object to the T it needs, or drops it. Cached values are
// immutable and shared, so a caller may keep the pointer it was given.
//
// The informer's own thread calls the hooks, one at a time and in order. They may not destroy the informer.
// Nothing fails: see reflector.h.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "fencing/kube/reflector.h"

namespace lunkeeper::kube {

// "namespace/name", or "name" for a kind without namespaces.
std::string KeyOf(const Json& object);

template <class T>
struct InformerHooks {
  std::function<std::optional<T>(const Json& object)> reduce;
  // The object's value is new or differs; null: it is gone, or `reduce` drops it now. Not called when the
  // value stays the same, but for ListAgain and DeliverAgain.
  std::function<void(const std::string& key, const std::shared_ptr<const T>& now)> changed;
  // True: the cache is complete and current; comes after the calls of `changed` that made it so. False: the
  // watch is down, and the cache may be old.
  std::function<void(bool live)> live;
};

template <class T>
class Informer final : private WatchSink {
 public:
  Informer(KubeClient& client, const Selection& selection, InformerHooks<T> hooks,
           const WatchTimes& times = {}, Executor& executor = RealExecutor())
      : hooks_(std::move(hooks)), reflector_(StartReflector(client, selection, *this, times, executor)) {}

  // For a caller to whom the object of that key is another one than its writes find. Lists everything anew;
  // then `changed` is called for that key in any case, as the caller may believe what this cache never had.
  // Thread-safe; returns at once.
  void ListAgain(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      doubted_[key] = true;
    }
    reflector_->ListAgain();
  }
  // The same of the next list, whenever that is. For a caller who knows before this cache what the object is
  // now, or that it is gone: if a restore of etcd takes that back meanwhile, nothing is new to the cache.
  // That it is gone is not said again: the next list may come much later, and be older than one that the
  // caller has made since.
  void DeliverAgain(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    doubted_.try_emplace(key, false);
  }

 private:
  struct Entry {
    std::shared_ptr<const T> value;
    uint32_t round = 0;  // the number of the last list that had the object
  };

  void OnListStart() override { ++round_; }

  void OnObject(const Json& object) override {
    const std::string key = KeyOf(object);
    std::optional<T> now = hooks_.reduce(object);
    if (!now) return DropValue(key);
    if (const auto news = KeepValue(key, *std::move(now))) hooks_.changed(key, news);
  }

  // That says again, too, what a caller doubted. A list which began before an object of the same name was
  // made anew must not say that this one is gone.
  void OnDeleted(const Json& object) override {
    const std::string key = KeyOf(object);
    const bool kept = kept_.erase(key) > 0;
    if (TakeDoubt(key) || kept) hooks_.changed(key, nullptr);
  }

  // Objects that the last list did not have were deleted while nobody watched.
  void OnListEnd() override {
    std::vector<std::string> gone;
    for (const auto& [key, entry] : kept_)
      if (entry.round != round_) gone.push_back(key);
    std::sort(gone.begin(), gone.end());  // the map's order is another one with each start of the program
    for (const std::string& key : gone) DropValue(key);
    for (const auto& [key, also_gone] : TakeDoubted()) {
      const auto found = kept_.find(key);
      if (found != kept_.end())
        hooks_.changed(key, found->second.value);
      else if (also_gone)
        hooks_.changed(key, nullptr);
    }
  }

  std::map<std::string, bool> TakeDoubted() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(doubted_, {});
  }

  bool TakeDoubt(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return doubted_.erase(key) > 0;
  }

  void OnLive(bool live) override { hooks_.live(live); }

  // Stores a value and returns it; null: the cache holds the same already.
  std::shared_ptr<const T> KeepValue(const std::string& key, T now) {
    Entry& entry = kept_[key];
    entry.round = round_;
    if (entry.value != nullptr && *entry.value == now) return nullptr;
    entry.value = std::make_shared<const T>(std::move(now));
    return entry.value;
  }

  void DropValue(const std::string& key) {
    if (kept_.erase(key) > 0) hooks_.changed(key, nullptr);
  }

  const InformerHooks<T> hooks_;
  // Used by the reflector's thread only.
  uint32_t round_ = 0;
  absl::node_hash_map<std::string, Entry> kept_;
  absl::Mutex mutex_;
  std::map<std::string, bool> doubted_ ABSL_GUARDED_BY(mutex_);  // to be said again; true: if gone, too
  const std::unique_ptr<Reflector> reflector_;                   // last: its thread uses the other members
};

}  // namespace lunkeeper::kube
