#include "fencing/failover/testing/fake_api.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lunkeeper::fencing {
namespace {

using kube::Exchange;
using kube::FieldAt;
using kube::Json;
using kube::TextAt;

// "/api/v1/namespaces/db/pods/x" → "/api/v1/pods": of all namespaces. `named`: the path is an object's.
std::string KindPath(std::string path, bool named) {
  if (named) path.resize(path.rfind('/'));
  const size_t space = path.find("/namespaces/");
  if (space == std::string::npos) return path;
  const size_t rest = path.find('/', space + 12);
  return rest == std::string::npos ? path.substr(0, space) + "/namespaces"
                                   : path.substr(0, space) + path.substr(rest);
}

bool IsPod(const std::string& path) { return KindPath(path, true) == "/api/v1/pods"; }

}  // namespace

FakeApi::FakeApi(Observer observer, Handler first)
    : observer_(std::move(observer)),
      first_(std::move(first)),
      fixture_(std::make_unique<kube::ApiFixture>([this](Exchange& exchange) { Handle(exchange); })) {}

FakeApi::~FakeApi() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  fixture_.reset();
}

void FakeApi::Put(const std::string& path, Json object) {
  absl::MutexLock lock(&mu_);
  object["metadata"]["name"] = path.substr(path.rfind('/') + 1);
  const size_t space = path.find("/namespaces/");
  if (space != std::string::npos && KindPath(path, true) != "/api/v1/namespaces")
    object["metadata"]["namespace"] = path.substr(space + 12, path.find('/', space + 12) - space - 12);
  Store(path, std::move(object));
}

void FakeApi::Merge(const std::string& path, const Json& patch) {
  absl::MutexLock lock(&mu_);
  Json object = objects_.at(path);
  object.merge_patch(patch);
  Store(path, std::move(object));
}

void FakeApi::Remove(const std::string& path) {
  absl::MutexLock lock(&mu_);
  if (objects_.contains(path)) Drop(path);
}

Json FakeApi::Get(const std::string& path) const {
  absl::MutexLock lock(&mu_);
  const auto found = objects_.find(path);
  return found == objects_.end() ? Json() : found->second;
}

std::vector<std::string> FakeApi::writes() const {
  absl::MutexLock lock(&mu_);
  return writes_;
}

size_t FakeApi::CountWrites(const std::string& prefix) const {
  absl::MutexLock lock(&mu_);
  return static_cast<size_t>(std::count_if(writes_.begin(), writes_.end(), [&](const std::string& write) {
    return absl::StartsWith(write, prefix);
  }));
}

void FakeApi::Refuse(const std::string& prefix, int count) {
  absl::MutexLock lock(&mu_);
  refused_[prefix] = count;
}

void FakeApi::SetDown(bool down) {
  {
    absl::MutexLock lock(&mu_);
    down_ = down;
  }
  if (down) fixture_->CutAll();
}

void FakeApi::TakeCopy() {
  absl::MutexLock lock(&mu_);
  copy_ = objects_;
}

void FakeApi::RestoreCopy() {
  {
    absl::MutexLock lock(&mu_);
    objects_ = copy_;
    version_ = kFirstVersion;
    history_.clear();
  }
  fixture_->CutAll();
}

void FakeApi::Forget(const std::string& kind_path) {
  absl::MutexLock lock(&mu_);
  forgotten_ = kind_path;
}

void FakeApi::SilenceWatches(const std::string& kind_path) {
  absl::MutexLock lock(&mu_);
  silent_ = kind_path;
}

void FakeApi::RunPodsOn(const std::string& node) {
  absl::MutexLock lock(&mu_);
  spare_node_ = node;
}

Json FakeApi::Store(const std::string& path, Json object) {
  const bool is_new = !objects_.contains(path);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  if (is_new) object["metadata"]["uid"] = absl::StrCat("uid-", ++uids_);
  objects_[path] = object;
  history_.push_back({version_, KindPath(path, true), is_new ? "ADDED" : "MODIFIED", object});
  return object;
}

void FakeApi::Drop(const std::string& path) {
  Json object = objects_.at(path);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects_.erase(path);
  history_.push_back({version_, KindPath(path, true), "DELETED", object});
  if (IsPod(path) && !FieldAt(object, {"metadata", "ownerReferences"}).empty())
    Recreate(std::move(object), path);
}

void FakeApi::Recreate(Json pod, const std::string& path) {
  if (spare_node_.empty()) return;
  pod["metadata"].erase("deletionTimestamp");
  pod["spec"]["nodeName"] = spare_node_;
  Store(path, std::move(pod));
}

void FakeApi::Handle(Exchange& exchange) {
  if (first_(exchange)) return;
  std::string write;
  {
    absl::MutexLock lock(&mu_);
    if (down_ || stopping_) return exchange.Cut();
    if (!forgotten_.empty() && absl::StartsWith(exchange.path, forgotten_))
      return exchange.Refuse(404, "NotFound", "the server could not find the requested resource");
    if (exchange.method != "GET") {
      write = absl::StrCat(exchange.method, " ", exchange.path);
      for (auto& [prefix, count] : refused_)
        if (count > 0 && absl::StartsWith(write, prefix)) {
          --count;
          return exchange.Refuse(409, "Conflict", "the object has been modified");
        }
      if (exchange.method == "POST") Create(exchange);
      if (exchange.method == "PATCH") Patch(exchange);
      if (exchange.method == "DELETE") Delete(exchange);
    }
  }
  if (!write.empty()) return;
  if (exchange.query.contains("watch")) return Watch(exchange);
  const Json object = Get(exchange.path);
  if (!object.is_null()) return exchange.Reply(object);
  // An object's path that leads nowhere, as far as these tests ask: a lease.
  if (absl::StrContains(exchange.path, "/leases/")) return exchange.Refuse(404, "NotFound", "no such object");
  List(exchange);
}

void FakeApi::List(Exchange& exchange) {
  absl::MutexLock lock(&mu_);
  std::vector<Json> items;
  for (const auto& [path, object] : objects_)
    if (KindPath(path, true) == KindPath(exchange.path, false)) items.push_back(object);
  exchange.Reply(kube::ListOf(items, version_));
}

void FakeApi::Watch(Exchange& exchange) {
  int from = 0, seconds = 0;
  (void)absl::SimpleAtoi(exchange.query["resourceVersion"], &from);
  (void)absl::SimpleAtoi(exchange.query["timeoutSeconds"], &seconds);
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  const std::string kind = KindPath(exchange.path, false);
  exchange.Begin();
  for (size_t seen = 0; absl::Now() < end;) {
    std::vector<Happening> news;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || down_ || history_.size() > seen;
      };
      mu_.AwaitWithDeadline(absl::Condition(&due), end);
      if (stopping_ || down_) return exchange.Cut();
      for (; seen < history_.size(); ++seen)
        if (history_[seen].version > from && history_[seen].kind_path == kind && kind != silent_)
          news.push_back(history_[seen]);
    }
    for (const Happening& each : news) exchange.Event(each.type, each.object);
  }
  exchange.End();
}

void FakeApi::Create(Exchange& exchange) {
  Json object = kube::ParseJson(exchange.body).value_or(Json());
  std::string name = TextAt(object, {"metadata", "name"});
  if (name.empty()) name = absl::StrCat(TextAt(object, {"metadata", "generateName"}), ++uids_);
  object["metadata"]["name"] = name;
  const std::string path = absl::StrCat(exchange.path, "/", name);
  if (objects_.contains(path)) return exchange.Refuse(409, "AlreadyExists", "there is one");
  writes_.push_back(absl::StrCat("POST ", path));
  observer_(writes_.back());
  exchange.Reply(Store(path, std::move(object)));
}

bool FakeApi::Meets(const Json& conditions, const Json& object) const {
  for (const char* name : {"uid", "resourceVersion"}) {
    const std::string wanted = TextAt(conditions, {name});
    if (!wanted.empty() && wanted != TextAt(object, {"metadata", name})) return false;
  }
  return true;
}

void FakeApi::Patch(Exchange& exchange) {
  const auto found = objects_.find(exchange.path);
  if (found == objects_.end()) return exchange.Refuse(404, "NotFound", "no such object");
  const Json patch = kube::ParseJson(exchange.body).value_or(Json());
  if (!Meets(FieldAt(patch, {"metadata"}), found->second))
    return exchange.Refuse(409, "Conflict", "the object has been modified");
  writes_.push_back(absl::StrCat("PATCH ", exchange.path));
  observer_(writes_.back());
  Json object = found->second;
  object.merge_patch(patch);
  object = Store(exchange.path, std::move(object));
  const Json& metadata = object["metadata"];
  if (metadata.contains("deletionTimestamp") && FieldAt(object, {"metadata", "finalizers"}).empty())
    Drop(exchange.path);
  exchange.Reply(object);
}

void FakeApi::Delete(Exchange& exchange) {
  const auto found = objects_.find(exchange.path);
  if (found == objects_.end()) return exchange.Refuse(404, "NotFound", "no such object");
  const Json options = kube::ParseJson(exchange.body).value_or(Json());
  if (!Meets(FieldAt(options, {"preconditions"}), found->second))
    return exchange.Refuse(409, "Conflict", "the object has been modified");
  writes_.push_back(absl::StrCat("DELETE ", exchange.path));
  observer_(writes_.back());
  if (FieldAt(found->second, {"metadata", "finalizers"}).empty()) {
    Drop(exchange.path);
  } else {
    Json object = found->second;
    object["metadata"]["deletionTimestamp"] = kube::FormatMicroTime(absl::Now());
    Store(exchange.path, std::move(object));
  }
  exchange.Reply(Json::object());
}

}  // namespace lunkeeper::fencing
