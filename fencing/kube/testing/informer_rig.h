#pragma once
// An informer of pods, with the API server that it watches and the consumer that it feeds, for tests.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "fencing/kube/informer.h"
#include "fencing/kube/testing/api_fixture.h"

namespace lunkeeper::kube {

inline constexpr WatchTimes kQuick{absl::Seconds(30), absl::Seconds(20), absl::Milliseconds(1),
                                   absl::Milliseconds(20)};

// What one consumer of pods has received: the version of each, as a number in a text.
class Told {
 public:
  InformerHooks<std::string> Hooks() {
    return {[](const Json& object) -> std::optional<std::string> {
              if (FlagAt(object, {"hidden"})) return std::nullopt;
              return TextAt(object, {"metadata", "resourceVersion"});
            },
            [this](const std::string& key, const std::shared_ptr<const std::string>& now) {
              absl::MutexLock lock(&mu_);
              ++changes_;
              if (now == nullptr) {
                pods_.erase(key);
              } else {
                pods_[key] = *now;
              }
            },
            [this](bool live) {
              absl::MutexLock lock(&mu_);
              lives_ += live ? "+" : "-";
            }};
  }

  // True once exactly this is known.
  bool Comes(const std::map<std::string, std::string>& pods) {
    return Until([&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return pods_ == pods; });
  }
  bool Lives(const std::string& lives) {
    return Until([&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return lives_ == lives; });
  }
  int changes() {
    absl::MutexLock lock(&mu_);
    return changes_;
  }

 private:
  template <class Condition>
  bool Until(Condition condition) {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&condition), absl::Seconds(30));
  }

  absl::Mutex mu_;
  std::map<std::string, std::string> pods_ ABSL_GUARDED_BY(mu_);
  std::string lives_ ABSL_GUARDED_BY(mu_);
  int changes_ ABSL_GUARDED_BY(mu_) = 0;
};

inline Json Pod(int number, int version) { return Object("db", absl::StrCat("p", number), version); }
inline Json Bookmark(int version) { return {{"metadata", {{"resourceVersion", std::to_string(version)}}}}; }

// An API server whose lists are right and whose watches are the test's: one after another, the last one
// stays.
class Script {
 public:
  using Watch = std::function<void(Exchange&)>;

  Script(std::vector<Json> first_list, int version, std::vector<Watch> watches)
      : list_(std::move(first_list)), version_(version), watches_(std::move(watches)) {}

  void operator()(Exchange& exchange) {
    if (!exchange.query.contains("watch")) return List(exchange);
    const size_t number = watched_++;
    {
      absl::MutexLock lock(&mu_);
      from_.push_back(exchange.query["resourceVersion"]);
    }
    if (number < watches_.size()) return watches_[number](exchange);
    exchange.Begin();
    exchange.Hang();
  }

  void SetList(std::vector<Json> list, int version) {
    absl::MutexLock lock(&mu_);
    list_ = std::move(list);
    version_ = version;
  }
  int lists() const { return lists_; }
  // The versions from which it was watched.
  std::vector<std::string> from() {
    absl::MutexLock lock(&mu_);
    return from_;
  }

 private:
  void List(Exchange& exchange) {
    absl::MutexLock lock(&mu_);
    if (exchange.query["limit"] != "1") ++lists_;
    exchange.Reply(ListOf(list_, version_));
  }

  std::atomic<size_t> watched_ = 0;
  std::atomic<int> lists_ = 0;
  absl::Mutex mu_;
  std::vector<Json> list_ ABSL_GUARDED_BY(mu_);
  int version_ ABSL_GUARDED_BY(mu_);
  std::vector<Watch> watches_;
  std::vector<std::string> from_ ABSL_GUARDED_BY(mu_);
};

// The whole of it: server, client, informer.
struct InformerRig {
  explicit InformerRig(Script& script, const WatchTimes& times = kQuick)
      : api([&script](Exchange& exchange) { script(exchange); }),
        client(api.Client()),
        informer(*client, {kPods}, told.Hooks(), times) {}
  Told told;
  ApiFixture api;
  std::unique_ptr<KubeClient> client;
  Informer<std::string> informer;
};

}  // namespace lunkeeper::kube
