// How long it takes to list 100,000 pods and how much memory it takes to keep what the failover needs of
// them. Not run by ctest: `mirror_measure_test "[measure]"`. The server is another process.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fencing/core/types.h"
#include "fencing/kube/api_fixture.h"
#include "fencing/kube/mirror.h"

namespace lunkeeper::kube {
namespace {

constexpr int kPodCount = 100'000;

// A pod of ordinary size (5.5 KB), with what nobody needs here and most of the bytes.
Json PodTemplate() {
  Json managed = Json::object();
  for (int i = 0; i < 40; ++i)
    managed[absl::StrCat("f:field-", i)] = {{"f:sub", Json::object()}, {".", Json::object()}};
  Json container = {{"name", "database"},
                    {"image", "registry.example.com/team/database:16.4"},
                    {"resources", {{"limits", {{"cpu", "2"}, {"memory", "4Gi"}}}}},
                    {"volumeMounts", {{{"name", "data"}, {"mountPath", "/var/lib/data"}}}}};
  for (int i = 0; i < 12; ++i)
    container["env"].push_back(
        {{"name", absl::StrCat("VARIABLE_", i)}, {"value", "some value of ordinary length"}});
  Json conditions = Json::array();
  for (const char* type :
       {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"})
    conditions.push_back(
        {{"type", type}, {"status", "True"}, {"lastTransitionTime", "2026-11-20T10:00:00Z"}});
  return {{"metadata",
           {{"namespace", "team-databases"},
            {"name", "@NAME@"},
            {"uid", "5d3c8a1e-7a55-4b9e-9f10-@UID@"},
            {"resourceVersion", "12345678"},
            {"labels",
             {{"app.kubernetes.io/name", "database"}, {"statefulset.kubernetes.io/pod-name", "@NAME@"}}},
            {"ownerReferences", {{{"kind", "StatefulSet"}, {"name", "database"}, {"controller", true}}}},
            {"managedFields", {{{"manager", "kubelet"}, {"fieldsV1", managed}}}}}},
          {"spec",
           {{"nodeName", "@NODE@"},
            {"containers", {container}},
            {"volumes", {{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", "data-@NAME@"}}}}}}}},
          {"status", {{"phase", "Running"}, {"conditions", conditions}, {"podIP", "10.244.3.17"}}}};
}

void ServePods(Exchange& exchange, const std::string& pod) {
  if (exchange.query.contains("watch")) {
    exchange.Begin();
    return exchange.Hang();
  }
  int from = 0, most = 0;
  static_cast<void>(absl::SimpleAtoi(exchange.query["limit"], &most));
  static_cast<void>(absl::SimpleAtoi(exchange.query["continue"], &from));
  const int end = std::min(from + most, kPodCount);
  exchange.Begin();
  exchange.Chunk(absl::StrCat(R"({"metadata":{"resourceVersion":"99","continue":")",
                              end < kPodCount ? absl::StrCat(end) : "", R"("},"items":[)"));
  for (int i = from; i < end; ++i) {
    exchange.Chunk(absl::StrCat(i == from ? "" : ",",
                                absl::StrReplaceAll(pod, {{"@NAME@", absl::StrCat("database-", i)},
                                                          {"@UID@", absl::StrCat(100'000'000'000 + i)},
                                                          {"@NODE@", absl::StrCat("node-", i % 10'000)}})));
  }
  exchange.Chunk("]}");
  exchange.End();
}

// Runs the server in a child until the pipe is closed.
KubeConfig ServeInChild(int& keep_open) {
  int words[2], life[2];
  REQUIRE((::pipe(words) == 0 && ::pipe(life) == 0));
  if (::fork() == 0) {
    ::close(life[1]);
    {
      const std::string pod = ToText(PodTemplate());
      ApiFixture api([&](Exchange& exchange) { ServePods(exchange, pod); });
      const std::string line = absl::StrCat(api.Config().server, " ", api.Config().ca_file, "\n");
      if (::write(words[1], line.data(), line.size()) < 0) ::_exit(1);
      char byte = 0;
      while (::read(life[0], &byte, 1) > 0) {
      }
    }
    ::_exit(0);
  }
  ::close(life[0]);
  ::close(words[1]);
  keep_open = life[1];
  KubeConfig config;
  std::FILE* in = ::fdopen(words[0], "r");
  char server[200] = "", ca[200] = "";
  REQUIRE(std::fscanf(in, "%199s %199s", server, ca) == 2);
  std::fclose(in);
  config.server = server;
  config.ca_file = ca;
  return config;
}

fencing::Pod Reduced(const Json& pod) {
  fencing::Pod kept;
  kept.id = fencing::PodId(KeyOf(pod));
  kept.uid = fencing::Uid(TextAt(pod, {"metadata", "uid"}));
  kept.node = fencing::NodeName(TextAt(pod, {"spec", "nodeName"}));
  for (const Json& owner : FieldAt(pod, {"metadata", "ownerReferences"}))
    if (FlagAt(owner, {"controller"})) kept.owner_kind = TextAt(owner, {"kind"});
  for (const Json& volume : FieldAt(pod, {"spec", "volumes"}))
    kept.volumes[fencing::ArrayId("a")].insert(
        VolumeId(TextAt(volume, {"persistentVolumeClaim", "claimName"})));
  kept.running = TextAt(pod, {"status", "phase"}) == "Running";
  return kept;
}

long MemoryKiB(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long value = 0;
    if (word == field + ":" && status >> value) return value;
  }
  return -1;
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace

TEST_CASE("100,000 pods are listed and kept", "[.measure]") {
  int life = -1;
  const KubeConfig config = ServeInChild(life);
  const auto client = *MakeKubeClient(config);
  std::atomic<int> told = 0;
  absl::Notification live;
  const long before = MemoryKiB("VmRSS");
  const double cpu = CpuSeconds();
  const absl::Time start = absl::Now();
  {
    Mirror<fencing::Pod> mirror(*client, {kPods},
                                {[](const Json& pod) { return std::make_optional(Reduced(pod)); },
                                 [&](const std::string&, const fencing::Pod*) { ++told; },
                                 [&](bool now) {
                                   if (now) live.Notify();
                                 }});
    REQUIRE(live.WaitForNotificationWithTimeout(absl::Minutes(5)));
    std::printf(
        "%d pods of %zu bytes: %.1f s, %.1f s of CPU; resident %ld MiB before, %ld after, %ld at most\n",
        kPodCount, ToText(PodTemplate()).size(), absl::ToDoubleSeconds(absl::Now() - start),
        CpuSeconds() - cpu, before / 1024, MemoryKiB("VmRSS") / 1024, MemoryKiB("VmHWM") / 1024);
    CHECK(told == kPodCount);
    CHECK(mirror.size() == kPodCount);
  }
  ::close(life);
  ::wait(nullptr);
}

}  // namespace lunkeeper::kube
