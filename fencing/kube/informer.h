#pragma once
// A kind of objects, kept in memory as what the caller needs of each and no more. A function given by the
// caller reduces each object to a T as it arrives, or to nothing, and then it is kept as little as one that
// does not exist. Who is told of a T may hold on to it: it is the informer's own, and never changes.
//
// Thread-safe. `changed` and `live` are called on the informer's own thread, one call at a time, in order,
// with no lock held, so they may read this and other informers; they may not destroy it. Never fails: see
// reflector.h.

#include <cstdint>
#include <functional>
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

// "namespace/name", or "name" of what has no namespace.
std::string KeyOf(const Json& object);

template <class T>
struct InformerHooks {
  std::function<std::optional<T>(const Json& object)> reduce;
  // Null: it is gone. Not called when what is kept of the object stays the same.
  std::function<void(const std::string& key, const std::shared_ptr<const T>& now)> changed;
  // Everything has been listed and the watch stands (after the calls of `changed` that it led to), or it does
  // not.
  std::function<void(bool live)> live;
};

template <class T>
class Informer final : private WatchSink {
 public:
  Informer(KubeClient& client, const Selection& selection, InformerHooks<T> hooks,
           const WatchTimes& times = {})
      : hooks_(std::move(hooks)), reflector_(StartReflector(client, selection, *this, times)) {}

  std::optional<T> Find(const std::string& key) const {
    absl::ReaderMutexLock lock(&mu_);
    const auto found = kept_.find(key);
    return found == kept_.end() ? std::nullopt : std::make_optional(*found->second.value);
  }

  size_t size() const {
    absl::ReaderMutexLock lock(&mu_);
    return kept_.size();
  }

 private:
  struct Entry {
    std::shared_ptr<const T> value;
    uint32_t round = 0;  // the last list that had it
  };

  void Listing() override { ++round_; }

  void Seen(const Json& object) override {
    const std::string key = KeyOf(object);
    std::optional<T> now = hooks_.reduce(object);
    if (!now) return Drop(key);
    if (const auto news = Keep(key, *std::move(now))) hooks_.changed(key, news);
  }

  void Gone(const Json& object) override { Drop(KeyOf(object)); }

  void Listed() override {
    std::vector<std::string> gone;
    {
      absl::ReaderMutexLock lock(&mu_);
      for (const auto& [key, entry] : kept_)
        if (entry.round != round_) gone.push_back(key);
    }
    for (const std::string& key : gone) Drop(key);
  }

  void Live(bool live) override { hooks_.live(live); }

  // Null: it is no news.
  std::shared_ptr<const T> Keep(const std::string& key, T now) {
    absl::MutexLock lock(&mu_);
    Entry& entry = kept_[key];
    entry.round = round_;
    if (entry.value != nullptr && *entry.value == now) return nullptr;
    entry.value = std::make_shared<const T>(std::move(now));
    return entry.value;
  }

  void Drop(const std::string& key) {
    {
      absl::MutexLock lock(&mu_);
      if (kept_.erase(key) == 0) return;
    }
    hooks_.changed(key, nullptr);
  }

  const InformerHooks<T> hooks_;
  uint32_t round_ = 0;  // of the reflector's thread
  mutable absl::Mutex mu_;
  absl::node_hash_map<std::string, Entry> kept_ ABSL_GUARDED_BY(mu_);
  const std::unique_ptr<Reflector> reflector_;  // the last member: its thread uses the others
};

}  // namespace lunkeeper::kube
