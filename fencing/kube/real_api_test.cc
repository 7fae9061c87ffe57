// Against a real API server, whose program `./dev test kube` builds.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/kube/informer.h"
#include "fencing/kube/lease.h"
#include "fencing/kube/object_event.h"
#include "fencing/kube/testing/api_fixture.h"
#include "fencing/kube/testing/real_api_fixture.h"
#include "fencing/kube/token_review.h"

namespace lunkeeper::kube {
namespace {

using testing::Eventually;

const ObjectRef kPod{kPods, "db", "db-0"};
const Resource kSpaces{"", "v1", "namespaces"}, kAccounts{"", "v1", "serviceaccounts"};

Json PodOn(const std::string& name, const std::string& node) {
  return {{"metadata", {{"name", name}}},
          {"spec",
           {{"nodeName", node},
            {"serviceAccountName", "default"},
            {"containers", {{{"name", "c"}, {"image", "i"}}}}}}};
}

void MakeWorld(KubeClient& client) {
  REQUIRE(client.Create({kSpaces, "", ""}, {{"metadata", {{"name", "db"}}}}, Soon()).ok());
  REQUIRE(client.Create({kAccounts, "db", ""}, {{"metadata", {{"name", "default"}}}}, Soon()).ok());
  REQUIRE(client.Create({kNodes, "", ""}, {{"metadata", {{"name", "n1"}}}}, Soon()).ok());
}

Json MakePod(KubeClient& client, const std::string& name) {
  const auto pod = client.Create({kPods, "db", ""}, PodOn(name, "n1"), Soon());
  INFO(pod.status());
  REQUIRE(pod.ok());
  return *pod;
}

std::string UidOf(const Json& object) { return TextAt(object, {"metadata", "uid"}); }
std::string VersionOf(const Json& object) { return TextAt(object, {"metadata", "resourceVersion"}); }

// The labels of each pod, as an informer reports them.
struct Labels {
  explicit Labels(KubeClient& client)
      : informer(client, {kPods, "db"},
                 {[](const Json& pod) {
                    return std::make_optional(TextAt(pod, {"metadata", "labels", "a"}));
                  },
                  [this](const std::string& key, const std::shared_ptr<const std::string>& now) {
                    absl::MutexLock lock(&mutex);
                    if (now == nullptr) {
                      labels.erase(key);
                    } else {
                      labels[key] = *now;
                    }
                  },
                  [this](bool now) { live = now; }},
                 {absl::Seconds(8), absl::Seconds(3), absl::Milliseconds(10), absl::Milliseconds(200)}) {}
  bool Comes(const std::string& key, const std::optional<std::string>& value) {
    return Eventually([&] {
      absl::MutexLock lock(&mutex);
      const auto found = labels.find(key);
      return (found == labels.end() ? std::nullopt : std::make_optional(found->second)) == value;
    });
  }
  std::atomic<bool> live = false;
  absl::Mutex mutex;
  std::map<std::string, std::string> labels;
  Informer<std::string> informer;  // last: its thread uses the others
};

void WritesHoldTheirPreconditions(KubeClient& client) {
  const Json pod = MakePod(client, "db-0");
  const Json label = {{"metadata", {{"labels", {{"a", "1"}}}}}};
  CHECK(absl::IsAlreadyExists(client.Create({kPods, "db", ""}, PodOn("db-0", "n1"), Soon()).status()));
  CHECK(absl::IsAborted(client.Patch(kPod, label, {"", "1"}, Soon()).status()));
  CHECK_FALSE(client.Patch(kPod, label, {"00000000-0000-0000-0000-000000000000", ""}, Soon()).ok());
  const auto patched = client.Patch(kPod, label, {UidOf(pod), VersionOf(pod)}, Soon());
  INFO(patched.status());
  REQUIRE(patched.ok());
  CHECK(TextAt(*patched, {"metadata", "labels", "a"}) == "1");
  ObjectRef status = kPod;
  status.subresource = "status";
  CHECK(client.Patch(status, {{"status", {{"phase", "Running"}}}}, {UidOf(pod)}, Soon()).ok());
  CHECK(TextAt(*client.Get(kPod, Soon()), {"status", "phase"}) == "Running");
  CHECK(absl::IsInvalidArgument(client.Patch(kPod, {{"spec", {{"nodeName", "n2"}}}}, {}, Soon()).status()));

  CHECK(absl::IsAborted(client.Delete(kPod, {.uid = "another"}, absl::ZeroDuration(), Soon())));
  CHECK(client.Delete(kPod, {.uid = UidOf(pod)}, absl::Seconds(30), Soon()).ok());
  CHECK_FALSE(TextAt(*client.Get(kPod, Soon()), {"metadata", "deletionTimestamp"}).empty());
  CHECK(client.Delete(kPod, {.uid = UidOf(pod)}, absl::ZeroDuration(), Soon()).ok());
  CHECK(absl::IsNotFound(client.Get(kPod, Soon()).status()));
  CHECK(absl::IsNotFound(client.Delete(kPod, {.uid = UidOf(pod)}, absl::ZeroDuration(), Soon())));
}

void TokensAreReviewed(KubeClient& client) {
  const Json pod = MakePod(client, "node-pod");
  const Json request = {
      {"spec",
       {{"audiences", {"coordinator"}},
        {"expirationSeconds", 600},
        {"boundObjectRef",
         {{"kind", "Pod"}, {"apiVersion", "v1"}, {"name", "node-pod"}, {"uid", UidOf(pod)}}}}}};
  const auto made = client.Create({kAccounts, "db", "default", "token"}, request, Soon());
  INFO(made.status());
  REQUIRE(made.ok());
  const std::string token = TextAt(*made, {"status", "token"});
  const auto who = ReviewToken(client, token, "coordinator", Soon());
  INFO(who.status());
  REQUIRE(who.ok());
  CHECK(who->user == "system:serviceaccount:db:default");
  CHECK(
      (who->pod == "node-pod" && who->pod_uid == UidOf(pod) && who->node == "n1" && !who->node_uid.empty()));
  CHECK(absl::IsUnauthenticated(ReviewToken(client, token, "somebody-else", Soon()).status()));
  CHECK(absl::IsUnauthenticated(ReviewToken(client, token + "x", "coordinator", Soon()).status()));
  CHECK(absl::IsUnauthenticated(ReviewToken(client, "", "coordinator", Soon()).status()));
  REQUIRE(client.Delete({kPods, "db", "node-pod"}, {.uid = UidOf(pod)}, absl::ZeroDuration(), Soon()).ok());
  CHECK(Eventually(
      [&] { return !ReviewToken(client, token, "coordinator", Soon()).ok(); }));  // its pod is gone
}

void LeasesAndEventsAreTaken(KubeClient& client) {
  const LeaseName name{"db", "leader"};
  const auto none = ReadLease(client, name, Soon());
  REQUIRE(none.ok());
  const auto first = WriteLease(client, name, *none, "a", absl::Seconds(4), absl::Now(), Soon());
  INFO(first.status());
  REQUIRE(first.ok());
  CHECK(absl::IsAlreadyExists(
      WriteLease(client, name, *none, "b", absl::Seconds(4), absl::Now(), Soon()).status()));
  const auto renewed = WriteLease(client, name, *first, "a", absl::Seconds(4), absl::Now(), Soon());
  REQUIRE(renewed.ok());
  CHECK(
      absl::IsAborted(WriteLease(client, name, *first, "b", absl::Seconds(4), absl::Now(), Soon()).status()));
  const auto released = WriteLease(client, name, *renewed, "", absl::Seconds(4), absl::Now(), Soon());
  INFO(released.status());
  REQUIRE(released.ok());
  CHECK(WriteLease(client, name, *released, "b", absl::Seconds(4), absl::Now(), Soon())->transitions == 1);

  ObjectEvent event{
      "v1", "Node", "", "n1", "", EventKind::kWarning, "Fenced", "Fence", std::string(2000, 'x'), "r1"};
  const absl::Status of_node = RecordEvent(client, event, absl::Now(), Soon());
  INFO(of_node);
  CHECK(of_node.ok());
  event.kind = "Pod";
  event.space = "db";
  CHECK(RecordEvent(client, event, absl::Now(), Soon()).ok());
}

void ListsComeInPages(KubeClient& client) {
  std::vector<std::jthread> makers;
  std::atomic<int> failed = 0;
  for (int maker = 0; maker < 8; ++maker) {
    makers.emplace_back([&, maker] {
      for (int i = 0; i < 15; ++i)
        failed +=
            !client.Create({kPods, "db", ""}, PodOn(absl::StrCat("many-", maker, "-", i), "n1"), Soon()).ok();
    });
  }
  makers.clear();
  CHECK(failed == 0);
  std::map<std::string, std::string> uids;
  PageRequest page{50};
  do {
    const auto end = client.ListPage(
        {kPods, "db", "", "spec.nodeName=n1"}, page, [&](const Json& pod) { uids[KeyOf(pod)] = UidOf(pod); },
        Soon());
    REQUIRE(end.ok());
    page.next = end->next;
  } while (!page.next.empty());
  CHECK(uids.size() == 120);

  const absl::Time start = absl::Now();
  std::vector<std::jthread> deleters;
  for (const auto& [key, uid] : uids) {
    deleters.emplace_back([&, name = key.substr(3), uid = uid] {
      failed += !client.Delete({kPods, "db", name}, {.uid = uid}, absl::ZeroDuration(), Soon()).ok();
    });
  }
  deleters.clear();
  CHECK(failed == 0);
  std::printf("120 pods deleted in %.0f ms\n", absl::ToDoubleMilliseconds(absl::Now() - start));
}

}  // namespace

TEST_CASE("a real API server takes every verb, and refuses what it should") {
  RealApi api;
  const auto client = api.Client();
  MakeWorld(*client);
  WritesHoldTheirPreconditions(*client);
  TokensAreReviewed(*client);
  LeasesAndEventsAreTaken(*client);
  ListsComeInPages(*client);
}

TEST_CASE("an informer of a real API server survives its restart, its hanging and its restoration") {
  RealApi api;
  const auto client = api.Client();
  MakeWorld(*client);
  const auto label = [&](const std::string& value) {
    return client->Patch(kPod, {{"metadata", {{"labels", {{"a", value}}}}}}, {}, Soon()).ok();
  };
  MakePod(*client, "db-0");
  Labels labels(*client);
  CHECK(labels.Comes("db/db-0", ""));
  CHECK(label("1"));
  CHECK(labels.Comes("db/db-0", "1"));

  api.Kill();
  CHECK(Eventually([&] { return !labels.live; }));
  api.Save();
  api.Start();
  CHECK(Eventually([&] { return labels.live.load(); }));
  const auto old = client->OpenWatch({kPods}, "1", absl::Now() + absl::Seconds(10), Soon());
  CHECK(absl::IsOutOfRange(old.ok() ? (*old)->Next().status() : old.status()));
  CHECK(label("2"));
  CHECK(labels.Comes("db/db-0", "2"));

  api.Freeze();
  CHECK(absl::IsDeadlineExceeded(client->Get(kPod, Soon(absl::Milliseconds(500))).status()));
  CHECK(Eventually([&] { return !labels.live; }));
  api.Thaw();
  CHECK(Eventually([&] { return labels.live.load(); }));
  MakePod(*client, "db-1");
  CHECK(labels.Comes("db/db-1", ""));

  api.Kill();
  api.Restore();
  api.Start();
  CHECK(labels.Comes("db/db-0", "1"));
  CHECK(labels.Comes("db/db-1", std::nullopt));
  CHECK(label("3"));
  CHECK(labels.Comes("db/db-0", "3"));
}

}  // namespace lunkeeper::kube
