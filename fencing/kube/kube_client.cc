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

// Each verb builds one HttpRequest and hands it to the call pool; there is no state here but the pool. Lists
// and watches are parsed while they arrive (json_cutter.h). Everything else is read as a whole, up to a
// limit.
namespace lunkeeper::kube {
namespace {

constexpr char kJson[] = "application/json";
constexpr char kMergePatch[] = "application/merge-patch+json";
constexpr size_t kMostReplyBytes = JsonCutter::kMostBytes;
// The server ends a watch this long before the caller's deadline (timeoutSeconds), and sends a bookmark with
// the current version about two seconds before that.
constexpr absl::Duration kWatchMargin = absl::Seconds(5);

// `verb` is Kubernetes' word, for messages and for what an administrator must allow in a role.
HttpRequest MakeRequest(const char* verb, const char* method, const ObjectRef& object) {
  HttpRequest request;
  request.what = absl::StrCat(verb, " ", DisplayName(object));
  request.method = method;
  request.target = PathOf(object);
  return request;
}

ObjectRef KindRefOf(const Selection& selection) { return {selection.resource, selection.space, ""}; }

// INTERNAL whatever went wrong: the caller cannot correct it, and no repetition will.
absl::Status UnexpectedReply(const std::string& what, const absl::Status& why) {
  return absl::InternalError(absl::StrCat(what, ": ", why.message()));
}

// Makes a call whose reply is one object of bounded size.
absl::StatusOr<Json> CallForJson(CallPool& pool, const HttpRequest& request, Repeatable repeatable,
                                 const Limits& limits) {
  std::string body;
  RETURN_IF_ERROR(pool.MakeCall(
      request, repeatable,
      [&](std::string_view bytes) -> absl::Status {
        body.append(bytes);
        if (body.size() <= kMostReplyBytes) return absl::OkStatus();
        return absl::InternalError(absl::StrCat(request.what, ": the API server's reply is too large"));
      },
      limits));
  auto json = ParseJson(body);
  if (!json.ok()) return UnexpectedReply(request.what, json.status());
  return json;
}

void AddPreconditions(const Preconditions& only_if, Json& object, const char* where) {
  if (!only_if.uid.empty()) object[where]["uid"] = only_if.uid;
  if (!only_if.version.empty()) object[where]["resourceVersion"] = only_if.version;
}

// One call of Read may bring several events or a part of one; whole events wait in `changes_`.
class HttpWatchStream final : public WatchStream {
 public:
  HttpWatchStream(std::string what, std::unique_ptr<HttpsConnection> connection, Limits limits)
      : what_(std::move(what)), connection_(std::move(connection)), limits_(std::move(limits)) {}

  absl::StatusOr<std::optional<Change>> Next() override {
    while (changes_.empty()) {
      ASSIGN_OR_RETURN(const std::string_view bytes, connection_->ReadBytes(limits_));
      if (bytes.empty()) return std::nullopt;
      if (absl::Status status = cutter_.Feed(bytes); !status.ok()) return UnexpectedReply(what_, status);
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

class HttpKubeClient final : public KubeClient {
 public:
  explicit HttpKubeClient(const KubeConfig& config) : pool_(config) {}

  absl::StatusOr<Json> Get(const ObjectRef& object, const Limits& limits) override {
    return CallForJson(pool_, MakeRequest("get", "GET", object), Repeatable::kYes, limits);
  }

  absl::StatusOr<PageEnd> ListPage(const Selection& selection, const PageRequest& page,
                                   const std::function<void(Json object)>& each,
                                   const Limits& limits) override {
    HttpRequest request = MakeRequest("list", "GET", KindRefOf(selection));
    request.target += QueryOf({{"limit", absl::StrCat(page.most)},
                               {"continue", page.next},
                               {"labelSelector", selection.labels},
                               {"fieldSelector", selection.fields}});
    JsonCutter cutter(JsonCutter::Shape::kList, [&](std::string_view piece) -> absl::Status {
      ASSIGN_OR_RETURN(Json object, ParseJson(piece));
      each(std::move(object));
      return absl::OkStatus();
    });
    // An error of the cutter ends the call and comes back as the call's status. It is kept apart
    // from errors of the transport: a malformed reply is INTERNAL, whatever code the cutter used.
    absl::Status shape;
    const absl::Status called = pool_.MakeCall(
        request, Repeatable::kYes, [&](std::string_view bytes) { return shape = cutter.Feed(bytes); },
        limits);
    if (!shape.ok()) return UnexpectedReply(request.what, shape);
    RETURN_IF_ERROR(called);
    return ParsePageEnd(request.what, std::move(cutter).TakeRest());
  }

  absl::StatusOr<std::unique_ptr<WatchStream>> OpenWatch(const Selection& selection,
                                                         const std::string& version, absl::Time open_by,
                                                         const Limits& limits) override {
    const int64_t seconds = absl::ToInt64Seconds(limits.TimeLeft() - kWatchMargin);
    HttpRequest request = MakeRequest("watch", "GET", KindRefOf(selection));
    request.target += QueryOf({{"watch", "true"},
                               {"allowWatchBookmarks", "true"},
                               {"resourceVersion", version},
                               {"timeoutSeconds", absl::StrCat(std::max<int64_t>(seconds, 1))},
                               {"labelSelector", selection.labels},
                               {"fieldSelector", selection.fields}});
    ASSIGN_OR_RETURN(auto connection, pool_.OpenStream(request, {open_by, limits.stop}));
    return std::make_unique<HttpWatchStream>(request.what, std::move(connection), limits);
  }

  absl::StatusOr<Json> Create(const ObjectRef& at, const Json& object, const Limits& limits) override {
    HttpRequest request = MakeRequest("create", "POST", at);
    request.content_type = kJson;
    request.body = ToText(object);
    return CallForJson(pool_, request, Repeatable::kNo, limits);
  }

  absl::StatusOr<Json> Patch(const ObjectRef& object, const Json& merge, const Preconditions& only_if,
                             const Limits& limits) override {
    HttpRequest request = MakeRequest("patch", "PATCH", object);
    request.content_type = kMergePatch;
    // A resourceVersion or uid within a patch's metadata is a precondition to the API server: it answers 409.
    Json patch = merge;
    AddPreconditions(only_if, patch, "metadata");
    request.body = ToText(patch);
    return CallForJson(pool_, request, Repeatable::kNo, limits);
  }

  absl::Status Delete(const ObjectRef& object, const Preconditions& only_if,
                      std::optional<absl::Duration> grace, const Limits& limits) override {
    HttpRequest request = MakeRequest("delete", "DELETE", object);
    Json options = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}};
    if (grace) options["gracePeriodSeconds"] = absl::ToInt64Seconds(*grace);
    AddPreconditions(only_if, options, "preconditions");
    request.content_type = kJson;
    request.body = ToText(options);
    return pool_.MakeCall(
        // With a UID a repeated delete cannot hit a new object of the same name.
        request, only_if.uid.empty() ? Repeatable::kNo : Repeatable::kYes,
        [](std::string_view) { return absl::OkStatus(); }, limits);
  }

 private:
  // A list's own version and its continue token are in the list without its items, which the cutter leaves.
  static absl::StatusOr<PageEnd> ParsePageEnd(const std::string& what,
                                              const absl::StatusOr<std::string>& rest) {
    if (!rest.ok()) return UnexpectedReply(what, rest.status());
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

// Checks what would otherwise fail with every call, and be logged as if the API server were at fault.
absl::StatusOr<std::unique_ptr<KubeClient>> MakeKubeClient(const KubeConfig& config) {
  RETURN_IF_ERROR(ParseServer(config.server).status());
  if (config.ca_file.empty() || config.connections == 0)
    return absl::InvalidArgumentError("Kubernetes API: want a CA file and at least one connection");
  if (config.certificate_file.empty() != config.key_file.empty())
    return absl::InvalidArgumentError("Kubernetes API: a client certificate and its key go together");
  return std::make_unique<HttpKubeClient>(config);
}

}  // namespace lunkeeper::kube
