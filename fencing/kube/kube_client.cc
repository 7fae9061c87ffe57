#include "fencing/kube/kube_client.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "fencing/kube/api_path.h"
#include "fencing/kube/call_pool.h"
#include "fencing/kube/json_cutter.h"
#include "fencing/kube/watch_event.h"

namespace lunkeeper::kube {
namespace {

constexpr char kJson[] = "application/json";
constexpr char kMergePatch[] = "application/merge-patch+json";
constexpr size_t kMostReplyBytes = JsonCutter::kMostBytes;
// The server ends a watch so long before the caller's deadline, and says where it was two seconds earlier.
constexpr absl::Duration kWatchMargin = absl::Seconds(5);

HttpRequest Request(const char* verb, const char* method, const ObjectRef& object) {
  HttpRequest request;
  request.what = absl::StrCat(verb, " ", Spoken(object));
  request.method = method;
  request.target = PathOf(object);
  return request;
}

ObjectRef KindOf(const Selection& selection) { return {selection.resource, selection.space, ""}; }

absl::Status NotAsExpected(const std::string& what, const absl::Status& why) {
  return absl::InternalError(absl::StrCat(what, ": ", why.message()));
}

// A body of bounded size, kept as a whole.
absl::StatusOr<Json> CallForJson(CallPool& pool, const HttpRequest& request, Repeatable repeatable,
                                 const Limits& limits) {
  std::string body;
  RETURN_IF_ERROR(pool.Call(
      request, repeatable,
      [&](std::string_view bytes) -> absl::Status {
        body.append(bytes);
        if (body.size() <= kMostReplyBytes) return absl::OkStatus();
        return absl::InternalError(absl::StrCat(request.what, ": the API server's reply is too large"));
      },
      limits));
  auto json = ParseJson(body);
  if (!json.ok()) return NotAsExpected(request.what, json.status());
  return json;
}

void AddPreconditions(const Preconditions& only_if, Json& object, const char* where) {
  if (!only_if.uid.empty()) object[where]["uid"] = only_if.uid;
  if (!only_if.version.empty()) object[where]["resourceVersion"] = only_if.version;
}

class Stream final : public WatchStream {
 public:
  Stream(std::string what, std::unique_ptr<HttpsConnection> connection, Limits limits)
      : what_(std::move(what)), connection_(std::move(connection)), limits_(std::move(limits)) {}

  absl::StatusOr<std::optional<Change>> Next() override {
    while (changes_.empty()) {
      ASSIGN_OR_RETURN(const std::string_view bytes, connection_->Read(limits_));
      if (bytes.empty()) return std::nullopt;
      if (absl::Status status = cutter_.Feed(bytes); !status.ok()) return NotAsExpected(what_, status);
    }
    const std::string event = std::move(changes_.front());
    changes_.pop_front();
    ASSIGN_OR_RETURN(Change change, ParseWatchEvent(what_, event));
    return std::make_optional(std::move(change));
  }

 private:
  const std::string what_;
  const std::unique_ptr<HttpsConnection> connection_;
  const Limits limits_;
  std::deque<std::string> changes_;
  JsonCutter cutter_{JsonCutter::Shape::kStream, [this](std::string_view event) {
                       changes_.emplace_back(event);
                       return absl::OkStatus();
                     }};
};

class Client final : public KubeClient {
 public:
  explicit Client(const KubeConfig& config) : pool_(config) {}

  absl::StatusOr<Json> Get(const ObjectRef& object, const Limits& limits) override {
    return CallForJson(pool_, Request("get", "GET", object), Repeatable::kYes, limits);
  }

  absl::StatusOr<PageEnd> List(const Selection& selection, const PageRequest& page,
                               const std::function<void(Json object)>& each, const Limits& limits) override {
    HttpRequest request = Request("list", "GET", KindOf(selection));
    request.target += QueryOf({{"limit", absl::StrCat(page.most)},
                               {"continue", page.next},
                               {"labelSelector", selection.labels},
                               {"fieldSelector", selection.fields}});
    JsonCutter cutter(JsonCutter::Shape::kList, [&](std::string_view piece) -> absl::Status {
      ASSIGN_OR_RETURN(Json object, ParseJson(piece));
      each(std::move(object));
      return absl::OkStatus();
    });
    absl::Status shape;  // of the reply: told from the transport's errors
    const absl::Status called = pool_.Call(
        request, Repeatable::kYes, [&](std::string_view bytes) { return shape = cutter.Feed(bytes); },
        limits);
    if (!shape.ok()) return NotAsExpected(request.what, shape);
    RETURN_IF_ERROR(called);
    return EndOfPage(request.what, std::move(cutter).Finish());
  }

  absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const Selection& selection, const std::string& version,
                                                     absl::Time open_by, const Limits& limits) override {
    const int64_t seconds = absl::ToInt64Seconds(limits.deadline - absl::Now() - kWatchMargin);
    HttpRequest request = Request("watch", "GET", KindOf(selection));
    request.target += QueryOf({{"watch", "true"},
                               {"allowWatchBookmarks", "true"},
                               {"resourceVersion", version},
                               {"timeoutSeconds", absl::StrCat(std::max<int64_t>(seconds, 1))},
                               {"labelSelector", selection.labels},
                               {"fieldSelector", selection.fields}});
    ASSIGN_OR_RETURN(auto connection, pool_.OpenStream(request, {open_by, limits.stop}));
    return std::make_unique<Stream>(request.what, std::move(connection), limits);
  }

  absl::StatusOr<Json> Create(const ObjectRef& at, const Json& object, const Limits& limits) override {
    HttpRequest request = Request("create", "POST", at);
    request.content_type = kJson;
    request.body = ToText(object);
    return CallForJson(pool_, request, Repeatable::kNo, limits);
  }

  absl::StatusOr<Json> Patch(const ObjectRef& object, const Json& merge, const Preconditions& only_if,
                             const Limits& limits) override {
    HttpRequest request = Request("patch", "PATCH", object);
    request.content_type = kMergePatch;
    Json patch = merge;
    AddPreconditions(only_if, patch, "metadata");
    request.body = ToText(patch);
    return CallForJson(pool_, request, Repeatable::kNo, limits);
  }

  absl::Status Delete(const ObjectRef& object, const Preconditions& only_if,
                      std::optional<absl::Duration> grace, const Limits& limits) override {
    HttpRequest request = Request("delete", "DELETE", object);
    Json options = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}};
    if (grace) options["gracePeriodSeconds"] = absl::ToInt64Seconds(*grace);
    AddPreconditions(only_if, options, "preconditions");
    request.content_type = kJson;
    request.body = ToText(options);
    return pool_.Call(
        request, only_if.uid.empty() ? Repeatable::kNo : Repeatable::kYes,
        [](std::string_view) { return absl::OkStatus(); }, limits);
  }

 private:
  static absl::StatusOr<PageEnd> EndOfPage(const std::string& what, const absl::StatusOr<std::string>& rest) {
    if (!rest.ok()) return NotAsExpected(what, rest.status());
    const auto list = ParseJson(*rest);
    PageEnd end;
    if (list.ok())
      end = {TextAt(*list, {"metadata", "resourceVersion"}), TextAt(*list, {"metadata", "continue"})};
    if (end.version.empty())
      return absl::InternalError(absl::StrCat(what, ": the API server's reply is no list"));
    return end;
  }

  CallPool pool_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KubeClient>> MakeKubeClient(const KubeConfig& config) {
  RETURN_IF_ERROR(ParseServer(config.server).status());
  if (config.ca_file.empty() || config.connections == 0)
    return absl::InvalidArgumentError("Kubernetes API: want a CA file and at least one connection");
  if (config.certificate_file.empty() != config.key_file.empty())
    return absl::InvalidArgumentError("Kubernetes API: a client certificate and its key go together");
  return std::make_unique<Client>(config);
}

}  // namespace lunkeeper::kube
