#pragma once
// An API server in memory for tests, over real TLS: any kind of object, list, watch, get, create, merge patch
// and delete, with versions, UIDs, preconditions and finalizers as the real one has them. A pod of an owner
// that is deleted is made anew at once, running on another node. Thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/kube/testing/api_fixture.h"

namespace lunkeeper::fencing {

class FakeApi {
 public:
  // Each write that was carried out: "POST /apis/lunkeeper.io/v1alpha1/nodefences/n1.x".
  using Observer = std::function<void(const std::string& write)>;
  // Asked first; true: it has answered.
  using Handler = std::function<bool(kube::Exchange&)>;
  explicit FakeApi(
      Observer observer = [](const std::string&) {}, Handler first = [](kube::Exchange&) { return false; });
  ~FakeApi();

  std::unique_ptr<kube::KubeClient> Client() const { return fixture_->Client(); }
  kube::KubeConfig Config() const { return fixture_->Config(); }

  // `path` is the object's: "/api/v1/nodes/n1".
  void Put(const std::string& path, kube::Json object);
  void Merge(const std::string& path, const kube::Json& patch);
  void Remove(const std::string& path);
  // Null: there is none.
  kube::Json Get(const std::string& path) const;
  std::vector<std::string> writes() const;
  size_t CountWrites(const std::string& prefix) const;
  // The next `count` writes whose method and path begin so are answered with an error, as if there had been a
  // conflict.
  void Refuse(const std::string& prefix, int count);
  void SetDown(bool down);
  // As etcd and a restore of its backup: what was written in between has never been, and the version is older
  // than any that a watch knows.
  void TakeCopy();
  void RestoreCopy();
  // Kinds of which there are none here, as before their CustomResourceDefinition is installed.
  void Forget(const std::string& kind_path);
  // From now on watches of the kind deliver nothing, and do not end: as on a connection of which one end has
  // gone without a word.
  void SilenceWatches(const std::string& kind_path);
  // Where pods that are made anew run.
  void RunPodsOn(const std::string& node);

 private:
  static constexpr int kFirstVersion = 100;
  struct Happening {
    int version;
    std::string kind_path, type;
    kube::Json object;
  };

  void Handle(kube::Exchange& exchange);
  void List(kube::Exchange& exchange);
  void Watch(kube::Exchange& exchange);
  void Create(kube::Exchange& exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Patch(kube::Exchange& exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Delete(kube::Exchange& exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  kube::Json Store(const std::string& path, kube::Json object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Recreate(kube::Json pod, const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Meets(const kube::Json& conditions, const kube::Json& object) const;

  const Observer observer_;
  const Handler first_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false, down_ ABSL_GUARDED_BY(mu_) = false;
  int version_ ABSL_GUARDED_BY(mu_) = kFirstVersion, uids_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, kube::Json> objects_ ABSL_GUARDED_BY(mu_);  // by path
  std::map<std::string, kube::Json> copy_ ABSL_GUARDED_BY(mu_);
  std::vector<Happening> history_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> writes_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> refused_ ABSL_GUARDED_BY(mu_);
  std::string forgotten_ ABSL_GUARDED_BY(mu_), spare_node_ ABSL_GUARDED_BY(mu_), silent_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<kube::ApiFixture> fixture_;  // last: its threads use the others
};

}  // namespace lunkeeper::fencing
