// `./dev bench scale`: what one controller replica takes for a cluster of 10,000 nodes and 100,000 pods, of
// which three in ten have a volume, and how long it takes to see that one of those nodes is dead, beside a
// cluster of ten. The failover module is the real one, with its informers of the API server over TLS; the
// cluster is another process. Not in it: the coordinator's streams, and the network between arrays and
// controller.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "fencing/failover/failover.h"
#include "fencing/scale/hollow_arrays.h"
#include "fencing/scale/hollow_cluster.h"
#include "fencing/scale/hollow_cluster_process.h"

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kSyncTimeout = absl::Minutes(10),
                         kSettleTime =
                             absl::Minutes(2);  // every kernel has been probed, every VolumeLock made
constexpr absl::Duration kTrimEvery = absl::Minutes(1);
constexpr double kMostMiB = 150, kMostCores = 0.5, kTickSeconds = 0.25;

struct ScaleOptions {
  int seconds = 30, victims = 5;
};

struct ScaleFigures {
  double resident_mib = 0, most_mib = 0, cores = 0, sync_seconds = 0;
  std::vector<double> decided, moved;  // seconds
};

double StatusMiB(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == field + ":" && status >> kib) return kib / 1024;
  }
  return -1;
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// How many heartbeats of each node arrived.
using HeartbeatCounts = std::vector<std::atomic<uint64_t>>;

// Hands on the heartbeats of the other process, as the coordinator does with those of the nodes' streams.
class HeartbeatFeed {
 public:
  HeartbeatFeed(HollowClusterProcess& hollow_cluster, const HollowClusterSize& size, HeartbeatCounts& counts,
                HeartbeatSink& sink)
      : hollow_cluster_(hollow_cluster),
        size_(size),
        counts_(counts),
        thread_([this, &sink] { ForwardHeartbeats(sink); }) {}
  ~HeartbeatFeed() {
    hollow_cluster_.EndHeartbeats();
    thread_.join();
  }

 private:
  void ForwardHeartbeats(HeartbeatSink& sink) {
    for (std::vector<int> nodes = hollow_cluster_.ReadHeartbeats(); !nodes.empty();
         nodes = hollow_cluster_.ReadHeartbeats())
      for (const int node : nodes) sink.OnHeartbeat(HeartbeatOf(node));
  }
  Heartbeat HeartbeatOf(int node) {
    Heartbeat heartbeat;
    heartbeat.node = HollowNode(node);
    heartbeat.boot = absl::StrCat("5d3c8a1e-7a55-4b9e-9f10-", absl::Hex(node, absl::kZeroPad12));
    heartbeat.sequence = ++counts_[static_cast<size_t>(node)];
    for (int i = 0; i < size_.volumes_per_node; ++i)
      heartbeat.present.insert(HollowVolume(size_, node * size_.volumes_per_node + i));
    return heartbeat;
  }

  HollowClusterProcess& hollow_cluster_;
  const HollowClusterSize size_;
  HeartbeatCounts& counts_;
  std::thread thread_;
};

// Trims the heap meanwhile, as serve does.
void SleepAsServe(absl::Duration time) {
  for (const absl::Time end = absl::Now() + time; absl::Now() < end; TrimHeap())
    absl::SleepFor(std::min(kTrimEvery, end - absl::Now()));
}

void AwaitSync(Failover& failover, Metrics& metrics) {
  const absl::Time end = absl::Now() + kSyncTimeout;
  while (absl::Now() < end) {
    failover.ReportMetrics(metrics);
    const std::string text = metrics.ToText();
    if (absl::StrContains(text, "lunkeeper_failover_synced 1") &&
        absl::StrContains(text, "lunkeeper_failover_leading 1"))
      return;
    absl::SleepFor(absl::Seconds(1));  // counting ten thousand nodes takes the failover a while
  }
  throw std::runtime_error("the controller has not listed everything");
}

ScaleFigures MeasureCluster(const HollowClusterSize& size, const ScaleOptions& options) {
  HollowClusterProcess hollow_cluster(size);
  HeartbeatCounts counts(static_cast<size_t>(size.nodes));
  const auto arrays =
      MakeHollowArrays(size, [&counts](int node) { return counts[static_cast<size_t>(node)].load(); });
  const auto client = kube::MakeKubeClient(hollow_cluster.config()).value();
  FailoverOptions failover_options;
  failover_options.self = "replica-1";
  failover_options.lease = {"kube-system", "lunkeeper-failover"};
  failover_options.settings.budget_percent = 100;
  Metrics metrics("controller");  // outlives a report that comes late
  const absl::Time start = absl::Now();
  const auto failover = StartFailover(failover_options, *arrays, *client);
  const HeartbeatFeed feed(hollow_cluster, size, counts, *failover);  // goes before the failover
  AwaitSync(*failover, metrics);

  ScaleFigures figures;
  figures.sync_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  SleepAsServe(kSettleTime);
  const double cpu = CpuSeconds();
  absl::SleepFor(absl::Seconds(options.seconds));
  figures.cores = (CpuSeconds() - cpu) / options.seconds;
  figures.resident_mib = StatusMiB("VmRSS");
  figures.most_mib = StatusMiB("VmHWM");
  for (int i = 1; i <= options.victims; ++i) {
    const auto times = hollow_cluster.PowerOff(size.nodes * i / (options.victims + 1));
    if (!times) throw std::runtime_error("a dead node was not failed over");
    figures.decided.push_back(absl::ToDoubleSeconds(times->decided));
    figures.moved.push_back(absl::ToDoubleSeconds(times->moved));
  }
  return figures;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintRow(const char* what, double few, double many, const std::string& bar = "", bool met = true) {
  std::printf("%-44s %10.2f %10.2f   %s\n", what, few, many,
              bar.empty() ? "" : absl::StrCat(bar, met ? "  met" : "  MISSED").c_str());
}

void PrintTable(const ScaleFigures& few, const ScaleFigures& many) {
  std::printf("%-44s %10s %10s   bar\n", "", "few", "many");
  PrintRow("resident memory, MiB", few.resident_mib, many.resident_mib, "<= 150",
           many.resident_mib <= kMostMiB);
  PrintRow("  the most there ever was, MiB", few.most_mib, many.most_mib);
  PrintRow("processor, cores", few.cores, many.cores, "<= 0.5", many.cores <= kMostCores);
  const double later = MedianOf(many.decided) - MedianOf(few.decided);
  PrintRow("last heartbeat to decision, s (median)", MedianOf(few.decided), MedianOf(many.decided),
           "unchanged, within a tick", std::abs(later) <= kTickSeconds);
  PrintRow("  the longest", *std::max_element(few.decided.begin(), few.decided.end()),
           *std::max_element(many.decided.begin(), many.decided.end()));
  PrintRow("decision to the last pod deleted, s (median)", MedianOf(few.moved), MedianOf(many.moved));
  PrintRow("start to everything listed, s", few.sync_seconds, many.sync_seconds);
}

int Main(int argc, char** argv) {
  SetUpLogging("warn", LogFormat::kText);
  CLI::App app("What one controller replica takes for a large cluster.");
  HollowClusterSize size;
  ScaleOptions options;
  app.add_option("--nodes", size.nodes, "How many, each with ten pods")->check(CLI::Range(50, 60000));
  app.add_option("--volumes-per-node", size.volumes_per_node, "So many of the ten pods have a volume")
      ->check(CLI::Range(1, 10));
  app.add_option("--seconds", options.seconds, "How long its processor time is measured");
  app.add_option("--victims", options.victims, "How many nodes lose power, one after the other")
      ->check(CLI::Range(1, 8));
  CLI11_PARSE(app, argc, argv);
  HollowClusterSize few;
  few.nodes = 10;
  few.volumes_per_node = size.volumes_per_node;
  std::printf("few: %d nodes; many: %d nodes, %d pods, %d volumes on %d arrays\n", few.nodes, size.nodes,
              size.pods(), size.volumes(), size.arrays);
  std::fflush(stdout);
  LimitHeap();  // as serve does
  const ScaleFigures small = MeasureCluster(few, options);
  PrintTable(small, MeasureCluster(size, options));
  return 0;
}

}  // namespace
}  // namespace lunkeeper::fencing

int main(int argc, char** argv) {
  try {
    return lunkeeper::fencing::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lunkeeper-scale: %s\n", error.what());
    return 1;
  }
}
