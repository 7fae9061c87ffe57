#include "fencing/kube/kube_client.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"
#include "fencing/kube/informer.h"
#include "fencing/kube/testing/api_fixture.h"

namespace lunkeeper::kube {
namespace {

using testing::Eventually;

const ObjectRef kPod{kPods, "db", "db-0"};

bool Says(const absl::Status& status, const std::string& text) {
  INFO(status);
  const bool says = absl::StrContains(std::string(status.message()), text);
  CHECK(says);
  return says;
}

}  // namespace

TEST_CASE("an object is fetched with our token, over one connection for many calls") {
  ApiFixture api([](Exchange& exchange) {
    if (exchange.token != "first-token") return exchange.Refuse(401, "Unauthorized", "Unauthorized");
    if (exchange.path != "/api/v1/namespaces/db/pods/db-0")
      return exchange.Refuse(404, "NotFound", "no such pod");
    exchange.Reply(Object("db", "db-0", 5));
  });
  const auto client = api.Client();
  for (int i = 0; i < 20; ++i) {
    const auto pod = client->Get(kPod, Soon());
    REQUIRE(pod.ok());
    CHECK(TextAt(*pod, {"metadata", "resourceVersion"}) == "5");
  }
  CHECK(api.connections() == 1);
}

TEST_CASE("every refusal becomes its code, and says what was being done, on what, and why") {
  int status = 0;
  std::string reason;
  ApiFixture api([&](Exchange& exchange) { exchange.Refuse(status, reason, "because of this"); });
  const auto client = api.Client();
  const std::vector<std::tuple<int, std::string, absl::StatusCode>> cases = {
      {400, "BadRequest", absl::StatusCode::kInvalidArgument},
      {401, "Unauthorized", absl::StatusCode::kUnauthenticated},
      {403, "Forbidden", absl::StatusCode::kPermissionDenied},
      {404, "NotFound", absl::StatusCode::kNotFound},
      {409, "Conflict", absl::StatusCode::kAborted},
      {409, "AlreadyExists", absl::StatusCode::kAlreadyExists},
      {410, "Expired", absl::StatusCode::kOutOfRange},
      {422, "Invalid", absl::StatusCode::kInvalidArgument},
      {429, "TooManyRequests", absl::StatusCode::kUnavailable},
      {500, "InternalError", absl::StatusCode::kUnavailable},
      {504, "Timeout", absl::StatusCode::kUnavailable},
      {302, "", absl::StatusCode::kUnknown},
  };
  for (const auto& [http, why, code] : cases) {
    status = http;
    reason = why;
    const absl::Status result = client->Delete(kPod, {}, std::nullopt, Soon());
    CHECK(result.code() == code);
    Says(result, "delete pods/db/db-0: the API server refused (");
    Says(result, "because of this");
  }
}

TEST_CASE("a refusal that is no Status is shown in one short line") {
  ApiFixture api(
      [](Exchange& exchange) { exchange.Reply(502, "<html>\r\n" + std::string(100'000, 'x'), ""); });
  const absl::Status status = api.Client()->Get(kPod, Soon()).status();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().size() < 700);
  CHECK_FALSE(absl::StrContains(std::string(status.message()), "\n"));
}

TEST_CASE("a busy server's Retry-After is honoured, for writes too") {
  std::atomic<int> asked = 0;
  ApiFixture api([&](Exchange& exchange) {
    if (++asked < 3) return exchange.Refuse(429, "TooManyRequests", "slow down", "Retry-After: 1\r\n");
    exchange.Reply(Object("db", "db-0", 5));
  });
  const absl::Time start = absl::Now();
  CHECK(api.Client()->Create({kPods, "db", ""}, Json::object(), Soon()).ok());
  CHECK(asked == 3);
  CHECK(absl::Now() - start >= absl::Seconds(2));
}

TEST_CASE("a Retry-After beyond the deadline is an answer, at once") {
  ApiFixture api([](Exchange& exchange) {
    exchange.Refuse(429, "TooManyRequests", "slow down", "Retry-After: 60\r\n");
  });
  const absl::Time start = absl::Now();
  CHECK(absl::IsUnavailable(api.Client()->Get(kPod, Soon(absl::Seconds(20))).status()));
  CHECK(absl::Now() - start < absl::Seconds(10));
}

TEST_CASE("a server that is slow ends at the deadline") {
  ApiFixture api([](Exchange& exchange) {
    if (exchange.method == "DELETE") exchange.Begin();  // even when it has begun to answer
    exchange.Hang();
  });
  const auto client = api.Client();
  const absl::Time start = absl::Now();
  CHECK(absl::IsDeadlineExceeded(client->Get(kPod, Soon(absl::Milliseconds(300))).status()));
  CHECK(absl::IsDeadlineExceeded(client->Delete(kPod, {}, std::nullopt, Soon(absl::Milliseconds(300)))));
  CHECK(absl::Now() - start < absl::Seconds(10));
}

TEST_CASE("a clock that is set while a call is under way neither keeps the call nor ends it") {
  std::atomic<bool> hangs = true;
  ApiFixture api([&](Exchange& exchange) {
    if (hangs) return exchange.Hang();
    exchange.Reply(Object("db", "db-0", 5));
  });
  const auto client = api.Client();
  std::stop_source stop;
  std::optional<lunkeeper::testing::WallClockAhead> ahead(absl::Hours(1));
  lunkeeper::testing::AwaitAbseilsClock();
  const Limits limits{absl::Now() + absl::Seconds(1), stop.get_token()};
  ahead.reset();
  lunkeeper::testing::AwaitAbseilsClock();
  std::atomic<bool> over = false;
  absl::Status status;
  {
    std::jthread call([&] {
      status = client->Get(kPod, limits).status();
      over = true;
    });
    CHECK(Eventually([&] { return over.load(); }));
    stop.request_stop();
  }
  CHECK(absl::IsDeadlineExceeded(status));
  hangs = false;
  const Limits soon = Soon();
  ahead.emplace(absl::Hours(1));
  lunkeeper::testing::AwaitAbseilsClock();
  CHECK(client->Get(kPod, soon).ok());
}

TEST_CASE("a call that is under way stops when asked to") {
  std::atomic<bool> asked = false;
  ApiFixture api([&](Exchange& exchange) {
    asked = true;
    exchange.Hang();
  });
  const auto client = api.Client();
  std::stop_source stop;
  std::jthread stopper([&] {
    Eventually([&] { return asked.load(); });
    stop.request_stop();
  });
  const absl::Time start = absl::Now();
  CHECK(absl::IsCancelled(client->Get(kPod, {absl::Now() + absl::Minutes(2), stop.get_token()}).status()));
  CHECK(absl::IsCancelled(client->Get(kPod, {absl::Now() + absl::Minutes(2), stop.get_token()}).status()));
  CHECK(absl::Now() - start < absl::Seconds(20));
}

TEST_CASE("a server whose certificate another CA signed is not spoken to") {
  std::atomic<int> asked = 0;
  ApiFixture api([&](Exchange& exchange) {
    ++asked;
    exchange.Reply(Object("db", "db-0", 5));
  });
  KubeConfig config = api.Config();
  config.ca_file = api.OtherCa();
  const absl::Status status = (*MakeKubeClient(config))->Get(kPod, Soon()).status();
  CHECK(absl::IsUnauthenticated(status));
  Says(status, "check the CA file");

  config = api.Config();  // the right CA, but not the name in the certificate
  config.server = "https://localhost:" + config.server.substr(config.server.rfind(':') + 1);
  CHECK(absl::IsUnauthenticated((*MakeKubeClient(config))->Get(kPod, Soon()).status()));
  CHECK(asked == 0);
}

TEST_CASE("a renewed token counts with the next call, on the same connection") {
  ApiFixture api([](Exchange& exchange) {
    if (exchange.token != "second-token") return exchange.Refuse(401, "Unauthorized", "token has expired");
    exchange.Reply(Object("db", "db-0", 5));
  });
  const auto client = api.Client();
  const absl::Status expired = client->Get(kPod, Soon()).status();
  CHECK(absl::IsUnauthenticated(expired));
  CHECK_FALSE(absl::StrContains(std::string(expired.message()), "first-token"));
  api.WriteToken("second-token");
  CHECK(client->Get(kPod, Soon()).ok());
  CHECK(api.connections() == 1);
}

TEST_CASE("a token that cannot be sent is said to be missing, and what to look at") {
  ApiFixture api([](Exchange& exchange) { exchange.Reply(Object("db", "db-0", 5)); });
  for (const char* token : {"", "two lines\nX-Remote-User: admin"}) {
    api.WriteToken(token);
    const absl::Status status = api.Client()->Get(kPod, Soon()).status();
    CHECK(absl::IsFailedPrecondition(status));
    Says(status, api.token_file());
  }
}

TEST_CASE("a connection that was closed between calls is replaced without a word") {
  ApiFixture api([](Exchange& exchange) { exchange.Reply(Object("db", "db-0", 5)); });
  const auto client = api.Client();
  REQUIRE(client->Get(kPod, Soon()).ok());
  api.CutAll();
  CHECK(client->Create({kPods, "db", ""}, Json::object(), Soon()).ok());  // also for writes: nothing was sent
  CHECK(api.connections() == 2);
}

TEST_CASE("a call on a kept connection that dies is sent again if that is harmless, and else not") {
  std::atomic<int> writes = 0;
  ApiFixture api([&](Exchange& exchange) {
    if (exchange.method == "POST" || exchange.method == "PATCH") ++writes;
    if (exchange.request == 2) return exchange.Cut();  // read, perhaps carried out, never answered
    exchange.Reply(Object("db", "db-0", 5));
  });
  const auto client = api.Client();
  const auto keep_one = [&] { REQUIRE(client->Get(kPod, Soon()).ok()); };
  keep_one();
  CHECK(client->Get(kPod, Soon()).ok());
  CHECK(client->Delete(kPod, {.uid = "u"}, std::nullopt, Soon()).code() == absl::StatusCode::kOk);
  keep_one();
  CHECK(absl::IsUnavailable(client->Delete(kPod, {}, std::nullopt, Soon())));
  keep_one();
  CHECK(absl::IsUnavailable(client->Create({kPods, "db", ""}, Json::object(), Soon()).status()));
  keep_one();
  CHECK(absl::IsUnavailable(client->Patch(kPod, Json::object(), {}, Soon()).status()));
  CHECK(writes == 2);
}

TEST_CASE("a server that is not there, and a CA file that is not, are said to be missing") {
  ApiFixture api([](Exchange&) {});
  KubeConfig config = api.Config();
  config.server = ApiFixture([](Exchange&) {}).Config().server;  // ended already
  const absl::Status refused = (*MakeKubeClient(config))->Get(kPod, Soon()).status();
  CHECK(absl::IsUnavailable(refused));
  Says(refused, "connect to the API server at 127.0.0.1:");
  config.ca_file = "/no/such/file";
  const absl::Status missing = (*MakeKubeClient(config))->Get(kPod, Soon()).status();
  CHECK(absl::IsFailedPrecondition(missing));
  Says(missing, "/no/such/file");
}

TEST_CASE("a list is read page by page, whatever it holds") {
  ApiFixture api([](Exchange& exchange) {
    int from = 0, most = 0;
    static_cast<void>(absl::SimpleAtoi(exchange.query["limit"], &most));
    static_cast<void>(absl::SimpleAtoi(exchange.query["continue"], &from));
    std::vector<Json> items;
    for (int i = from; i < std::min(from + most, 1234); ++i)
      items.push_back(Object("db", "db-" + std::to_string(i), i + 1));
    const std::string next = from + most < 1234 ? std::to_string(from + most) : "";
    exchange.Begin();  // in chunks that end anywhere
    const std::string text = ToText(ListOf(items, 9000, next));
    for (size_t at = 0; at < text.size(); at += 7777) exchange.Chunk(text.substr(at, 7777));
    exchange.End();
  });
  const auto client = api.Client();
  std::set<std::string> names;
  PageRequest page;
  int pages = 0;
  do {
    const auto end = client->ListPage(
        {kPods}, page, [&](const Json& pod) { names.insert(KeyOf(pod)); }, Soon());
    REQUIRE(end.ok());
    CHECK(end->version == "9000");
    page.next = end->next;
    ++pages;
  } while (!page.next.empty());
  CHECK(pages == 3);
  CHECK(names.size() == 1234);
  CHECK(api.connections() == 1);
}

TEST_CASE("a list that is none, or is cut off, is an error and not an empty list") {
  std::function<void(Exchange&)> answer;
  ApiFixture api([&](Exchange& exchange) { answer(exchange); });
  const auto client = api.Client();
  const auto list = [&] {
    return client
        ->ListPage(
            {kPods}, {}, [](const Json&) {}, Soon())
        .status();
  };
  for (const char* text :
       {"", "null", "garbage", "{}", R"({"items":[]})", R"({"metadata":{"resourceVersion":"1"},"items":[)",
        R"({"metadata":{"resourceVersion":"1"},"items":[{"a":}]})", "{\"items\":[{\"a\":\"\xff\"}]}"}) {
    answer = [&](Exchange& exchange) { exchange.Reply(200, text); };
    CHECK(absl::IsInternal(list()));
  }
  answer = [](Exchange& exchange) {
    exchange.Begin();
    exchange.Chunk(R"({"metadata":{"resourceVersion":"1"},"items":[{"a":1},)");
    exchange.Cut();
  };
  CHECK(absl::IsUnavailable(list()));
}

TEST_CASE("selections, subresources and odd names reach the server as they were meant") {
  std::vector<std::string> seen;
  ApiFixture api([&](Exchange& exchange) {
    seen.push_back(absl::StrCat(exchange.method, " ", exchange.path, " ", exchange.query["labelSelector"],
                                " ", exchange.query["fieldSelector"], " ", exchange.content_type, " ",
                                exchange.body));
    exchange.Reply(ListOf({}, 1));
  });
  const auto client = api.Client();
  CHECK(client
            ->ListPage(
                {kPods, "db", "app in (a,b)", "spec.nodeName=n&1"}, {}, [](const Json&) {}, Soon())
            .ok());
  CHECK(client->Get({{"lunkeeper.io", "v1", "nodefences"}, "", "../n?x%", "status"}, Soon()).ok());
  CHECK(client->Patch({kNodes, "", "n1", "status"}, {{"a", nullptr}}, {"u1", "7"}, Soon()).ok());
  CHECK(client->Delete(kPod, {"u1", "7"}, absl::ZeroDuration(), Soon()).ok());
  CHECK(seen[0] == "GET /api/v1/namespaces/db/pods app in (a,b) spec.nodeName=n&1  ");
  CHECK(seen[1] == "GET /apis/lunkeeper.io/v1/nodefences/../n?x%/status    ");
  CHECK(seen[2] ==
        "PATCH /api/v1/nodes/n1/status   application/merge-patch+json "
        R"({"a":null,"metadata":{"resourceVersion":"7","uid":"u1"}})");
  CHECK(seen[3] ==
        "DELETE /api/v1/namespaces/db/pods/db-0   application/json "
        R"({"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions",)"
        R"("preconditions":{"resourceVersion":"7","uid":"u1"}})");
}

TEST_CASE("a pod of the same name but another UID is not deleted") {
  const std::string uid = "the-new-pod";
  bool there = true;
  ApiFixture api([&](Exchange& exchange) {
    const auto options = ParseJson(exchange.body);
    if (options.ok() && TextAt(*options, {"preconditions", "uid"}) != uid)
      return exchange.Refuse(409, "Conflict", "the UID in the precondition does not match");
    there = false;
    exchange.Reply(Json::object());
  });
  const auto client = api.Client();
  CHECK(absl::IsAborted(client->Delete(kPod, {.uid = "the-old-pod"}, absl::ZeroDuration(), Soon())));
  CHECK(there);
  CHECK(client->Delete(kPod, {.uid = uid}, absl::ZeroDuration(), Soon()).ok());
  CHECK_FALSE(there);
}

TEST_CASE("a reply that does not end takes bounded memory") {
  ApiFixture api([](Exchange& exchange) {
    exchange.Begin();
    const std::string chunk(1 << 20, ' ');
    for (int i = 0; i < 40; ++i) exchange.Chunk(chunk);
    exchange.End();
  });
  const absl::Status status = api.Client()->Get(kPod, Soon(absl::Seconds(120))).status();
  CHECK(absl::IsInternal(status));
  Says(status, "too large");
}

}  // namespace lunkeeper::kube
