#include "fencing/scale/hollow_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/testing/test_host.h"

// The API server's connections each have a thread (FakeApi), which calls AnswerRequest. Objects are made from
// templates while they are sent, so 100,000 pods take no memory here. What changes by itself is a function of
// the time: SendStatus computes which objects of a kind report in one step of a watch, spread evenly over the
// kind's round. Only writes (a pod that is deleted and made anew) are stored, under `mu_`.
namespace lunkeeper::fencing {
namespace {

using kube::Exchange;
using kube::Json;

constexpr absl::Duration kStep = absl::Milliseconds(100);  // of a watch
constexpr absl::Duration kRenewEvery = absl::Seconds(10);  // a kubelet its lease
constexpr std::string_view kNodeField = "metadata.name=node-";
constexpr char kFences[] = "/apis/lunkeeper.io/v1alpha1/nodefences/";

std::string NodeText(int node) { return absl::StrCat("node-", node); }
std::string SpaceOf(int pod) { return absl::StrCat("team-", pod % 100); }
std::string PodNameOf(int pod) { return absl::StrCat("database-", pod, "-0"); }
std::string ClaimOf(int pod) { return absl::StrCat("data-", PodNameOf(pod)); }
std::string MakeUuid(int kind, int number) {
  return absl::StrFormat("%08x-5bd1-4c3a-9d20-%012x", kind, number);
}

// Each machine has an address of this machine's loopback. Nobody listens there, so its kernel refuses a
// connect, as a living one does.
std::string AddressOf(int node) { return absl::StrFormat("127.64.%d.%d", node / 250, node % 250 + 1); }

sockaddr_in SocketAddress(const std::string& address, uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &at.sin_addr);
  return at;
}

// What the API server adds, and nobody here needs: a good part of an object's bytes.
Json ManagedFields(int fields) {
  Json managed = Json::object();
  for (int i = 0; i < fields; ++i)
    managed[absl::StrCat("f:field-", i)] = {{"f:sub", Json::object()}, {".", Json::object()}};
  return {{{"manager", "kubelet"}, {"fieldsV1", managed}}};
}

Json Conditions(std::initializer_list<const char*> types) {
  Json conditions = Json::array();
  for (const char* type : types)
    conditions.push_back(
        {{"type", type}, {"status", "True"}, {"lastTransitionTime", "2026-11-20T10:00:00Z"}});
  return conditions;
}

// 5.5 KB.
std::string PodTemplate(const Json& volume) {
  Json container = {{"name", "database"},
                    {"image", "registry.example.com/team/database:16.4"},
                    {"resources", {{"limits", {{"cpu", "2"}, {"memory", "4Gi"}}}}},
                    {"volumeMounts", {{{"name", "data"}, {"mountPath", "/var/lib/data"}}}}};
  for (int i = 0; i < 12; ++i)
    container["env"].push_back(
        {{"name", absl::StrCat("VARIABLE_", i)}, {"value", "some value of ordinary length"}});
  const auto while_unwell = [](const char* key) {
    return Json{{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}};
  };
  const Json pod = {
      {"metadata",
       {{"namespace", "@SPACE@"},
        {"name", "@NAME@"},
        {"uid", "@UID@"},
        {"resourceVersion", "@VERSION@"},
        {"labels",
         {{"app.kubernetes.io/name", "database"}, {"statefulset.kubernetes.io/pod-name", "@NAME@"}}},
        {"ownerReferences", {{{"kind", "StatefulSet"}, {"name", "database"}, {"controller", true}}}},
        {"managedFields", ManagedFields(40)}}},
      {"spec",
       {{"nodeName", "@NODE@"},
        {"containers", {container}},
        {"tolerations",
         {while_unwell("node.kubernetes.io/not-ready"), while_unwell("node.kubernetes.io/unreachable")}},
        {"volumes", {volume}}}},
      {"status",
       {{"phase", "Running"},
        {"conditions", Conditions({"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady",
                                   "PodScheduled"})},
        {"podIP", "10.244.3.17"}}}};
  return kube::ToText(pod);
}

// 10 KB, most of them the images it has.
std::string NodeTemplate(uint16_t kubelet_port) {
  Json labels = {{"kubernetes.io/hostname", "@NAME@"}, {"topology.kubernetes.io/zone", "zone-a"}};
  for (int i = 0; i < 18; ++i) labels[absl::StrCat("example.com/label-", i)] = absl::StrCat("value-", i);
  Json images = Json::array();
  for (int i = 0; i < 40; ++i)
    images.push_back({{"names",
                       {absl::StrCat("registry.example.com/team/image-", i, "@sha256:", std::string(64, 'a')),
                        absl::StrCat("registry.example.com/team/image-", i, ":1.0")}},
                      {"sizeBytes", 123456789}});
  const Json node = {{"metadata",
                      {{"name", "@NAME@"},
                       {"uid", "@UID@"},
                       {"resourceVersion", "@VERSION@"},
                       {"labels", labels},
                       {"managedFields", ManagedFields(30)}}},
                     {"spec", {{"podCIDR", "10.244.3.0/24"}}},
                     {"status",
                      {{"conditions", Conditions({"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"})},
                       {"addresses", {{{"type", "InternalIP"}, {"address", "@ADDRESS@"}}}},
                       {"daemonEndpoints", {{"kubeletEndpoint", {{"Port", kubelet_port}}}}},
                       {"images", images}}}};
  return kube::ToText(node);
}

std::string CsiNodeTemplate() {
  return kube::ToText({{"metadata", {{"name", "@NAME@"}, {"uid", "@UID@"}, {"resourceVersion", "@VERSION@"}}},
                       {"spec", {{"drivers", {{{"name", kDriverName}, {"nodeID", "@ID@"}}}}}}});
}

std::string VolumeTemplate() {
  return kube::ToText({{"metadata",
                        {{"name", "@NAME@"},
                         {"uid", "@UID@"},
                         {"resourceVersion", "@VERSION@"},
                         {"managedFields", ManagedFields(15)}}},
                       {"spec",
                        {{"capacity", {{"storage", "10Gi"}}},
                         {"storageClassName", "lunkeeper"},
                         {"csi", {{"driver", kDriverName}, {"volumeHandle", "@VOLUME@"}}},
                         {"claimRef", {{"namespace", "@SPACE@"}, {"name", "@CLAIM@"}}}}},
                       {"status", {{"phase", "Bound"}}}});
}

std::string LeaseTemplate() {
  return kube::ToText(
      {{"metadata",
        {{"namespace", "kube-node-lease"},
         {"name", "@NAME@"},
         {"uid", "@UID@"},
         {"resourceVersion", "@VERSION@"},
         {"managedFields", ManagedFields(5)}}},
       {"spec", {{"holderIdentity", "@NAME@"}, {"leaseDurationSeconds", 40}, {"renewTime", "@RENEWED@"}}}});
}

std::string EventLine(const char* type, const std::string& object) {
  return absl::StrCat(R"({"type":")", type, R"(","object":)", object, "}\n");
}

}  // namespace

NodeId HollowNode(int node) {
  return NodeId(absl::StrCat(NodeText(node), ".", absl::Hex(node, absl::kZeroPad16)));
}
std::string HollowArrayName(int array) { return absl::StrCat("array", array); }
VolumeId HollowVolume(const HollowClusterSize& size, int volume) {
  return VolumeId(
      absl::StrCat(HollowArrayName(volume % size.arrays), "-v", absl::Hex(volume, absl::kZeroPad16)));
}

HollowCluster::HollowCluster(const HollowClusterSize& size)
    : size_(size),
      kubelet_port_(testing::FreePort()),
      off_at_(static_cast<size_t>(size.nodes)),
      api_([this](const std::string& write) { OnWrite(write); },
           [this](Exchange& exchange) { return AnswerRequest(exchange); }) {
  const auto of_node = [this](std::string text, int kind) {
    return [this, text = std::move(text), kind](int node) {
      return absl::StrReplaceAll(
          text, {{"@NAME@", NodeText(node)},
                 {"@UID@", MakeUuid(kind, node)},
                 {"@ID@", HollowNode(node).value()},
                 {"@ADDRESS@", AddressOf(node)},
                 {"@RENEWED@", absl::FormatTime(absl::RFC3339_full, RenewedAt(node), absl::UTCTimeZone())},
                 {"@VERSION@", Version()}});
    };
  };
  const auto of_volume = [this, text = VolumeTemplate()](int volume) {
    const int pod = size_.PodOf(volume);
    return absl::StrReplaceAll(text, {{"@NAME@", absl::StrCat("pvc-", MakeUuid(4, volume))},
                                      {"@UID@", MakeUuid(5, volume)},
                                      {"@VOLUME@", HollowVolume(size_, volume).value()},
                                      {"@SPACE@", SpaceOf(pod)},
                                      {"@CLAIM@", ClaimOf(pod)},
                                      {"@VERSION@", Version()}});
  };
  const absl::Duration never = absl::InfiniteDuration();
  kinds_ = {{"/api/v1/nodes", size.nodes, absl::Minutes(5), true, of_node(NodeTemplate(kubelet_port_), 1)},
            {"/apis/storage.k8s.io/v1/csinodes", size.nodes, never, true, of_node(CsiNodeTemplate(), 2)},
            {"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", size.nodes, kRenewEvery, true,
             of_node(LeaseTemplate(), 3)},
            {"/api/v1/persistentvolumes", size.volumes(), never, false, of_volume},
            {"/api/v1/pods", size.pods(), absl::Hours(1), false, [this](int pod) { return PodText(pod); }}};
}

HollowCluster::~HollowCluster() {
  stopping_ = true;
  absl::MutexLock lock(&mu_);
  for (const int socket : sockets_) ::close(socket);
}

std::string HollowCluster::PodText(int pod) {
  static const std::string kPlain = PodTemplate({{"name", "data"}, {"emptyDir", Json::object()}});
  static const std::string kWithVolume =
      PodTemplate({{"name", "data"}, {"persistentVolumeClaim", {{"claimName", "@CLAIM@"}}}});
  int incarnation = 0;
  {
    absl::MutexLock lock(&mu_);
    if (const auto found = incarnations_.find(pod); found != incarnations_.end()) incarnation = found->second;
  }
  const int node = (pod / size_.pods_per_node + incarnation) % size_.nodes;
  return absl::StrReplaceAll(size_.HasVolume(pod) ? kWithVolume : kPlain,
                             {{"@NAME@", PodNameOf(pod)},
                              {"@SPACE@", SpaceOf(pod)},
                              {"@UID@", MakeUuid(100 + incarnation, pod)},
                              {"@CLAIM@", ClaimOf(pod)},
                              {"@NODE@", NodeText(node)},
                              {"@VERSION@", Version()}});
}

bool HollowCluster::AnswerRequest(Exchange& exchange) {
  if (exchange.method == "DELETE" && absl::StrContains(exchange.path, "/pods/")) {
    DeletePod(exchange);
    return true;
  }
  if (exchange.method == "PATCH" && absl::StartsWith(exchange.path, "/api/v1/nodes/")) {
    exchange.Reply(Json({{"metadata", {{"resourceVersion", Version()}}}}));
    return true;
  }
  for (const Kind& kind : kinds_) {
    if (exchange.path != kind.path) continue;
    if (exchange.query.contains("watch")) {
      SendWatch(exchange, kind);
    } else {
      SendList(exchange, kind);
    }
    return true;
  }
  return false;
}

// The last of its turns in SendStatus.
absl::Time HollowCluster::RenewedAt(int node) const {
  const int64_t off_at = off_at_[static_cast<size_t>(node)];
  const absl::Time until = kStep + (off_at != 0 ? absl::FromUnixMicros(off_at) : absl::Now());
  const absl::Duration turn = kRenewEvery * node / size_.nodes;
  return until - (until - absl::UnixEpoch() - turn) % kRenewEvery;
}

void HollowCluster::SendList(Exchange& exchange, const Kind& kind) {
  int from = 0, most = kind.count;
  static_cast<void>(absl::SimpleAtoi(exchange.query["limit"], &most));
  static_cast<void>(absl::SimpleAtoi(exchange.query["continue"], &from));
  // Of one node, or the lease of that name: before a fence the kubelet is read.
  const std::string field = exchange.query["fieldSelector"];
  if (field.starts_with(kNodeField)) {
    static_cast<void>(absl::SimpleAtoi(field.substr(kNodeField.size()), &from));
    most = 1;
  }
  const int end = std::min(from + most, kind.count);
  exchange.Begin();
  exchange.Chunk(absl::StrCat(R"({"metadata":{"resourceVersion":")", Version(), R"(","continue":")",
                              end < kind.count ? absl::StrCat(end) : "", R"("},"items":[)"));
  for (int i = from; i < end; ++i) exchange.Chunk(absl::StrCat(i == from ? "" : ",", kind.text(i)));
  exchange.Chunk("]}");
  exchange.End();
}

void HollowCluster::SendWatch(Exchange& exchange, const Kind& kind) {
  int64_t seen = 0;
  int seconds = 0;
  static_cast<void>(absl::SimpleAtoi(exchange.query["resourceVersion"], &seen));
  static_cast<void>(absl::SimpleAtoi(exchange.query["timeoutSeconds"], &seconds));
  exchange.Begin();
  const absl::Time start = absl::Now(), end = start + absl::Seconds(seconds);
  for (absl::Time at = ResumeAt(kind, start); at < end; at += kStep) {
    if (!SendWrites(exchange, kind, seen)) return exchange.Cut();
    SendStatus(exchange, kind, at);
    absl::SleepFor(at + kStep - absl::Now());
  }
  exchange.End();
}

bool HollowCluster::SendWrites(Exchange& exchange, const Kind& kind, int64_t& seen) {
  if (stopping_) return false;
  std::vector<std::string> lines;
  {
    absl::MutexLock lock(&mu_);
    for (const Change& write : writes_)
      if (write.version > seen && write.kind == kind.path) lines.push_back(write.line);
    if (!writes_.empty()) seen = std::max(seen, writes_.back().version);
  }
  for (const std::string& line : lines) exchange.Chunk(line);
  return true;
}

absl::Time HollowCluster::ResumeAt(const Kind& kind, absl::Time now) {
  absl::MutexLock lock(&mu_);
  const auto resumed = reported_until_.find(kind.path);
  return resumed != reported_until_.end() && now - resumed->second < absl::Seconds(5)
             ? std::min(resumed->second, now)
             : now;
}

void HollowCluster::SendStatus(Exchange& exchange, const Kind& kind, absl::Time at) {
  const auto rounds = [&](absl::Time time) {
    return absl::FDivDuration(time - absl::UnixEpoch(), kind.round);
  };
  const auto end = static_cast<int64_t>(rounds(at + kStep) * kind.count);
  for (auto next = static_cast<int64_t>(rounds(at) * kind.count); next < end; ++next) {
    const int number = static_cast<int>(next % kind.count);
    if (!kind.of_nodes || !IsOff(number)) exchange.Chunk(EventLine("MODIFIED", kind.text(number)));
  }
  absl::MutexLock lock(&mu_);
  reported_until_[kind.path] = at + kStep;
}

// "/api/v1/namespaces/team-7/pods/database-107-0"
void HollowCluster::DeletePod(Exchange& exchange) {
  int pod = 0;
  const std::string name = exchange.path.substr(exchange.path.rfind('/') + 1);
  static_cast<void>(absl::SimpleAtoi(name.substr(9, name.rfind('-') - 9), &pod));
  const std::string before = PodText(pod);
  {
    absl::MutexLock lock(&mu_);
    ++incarnations_[pod];
    const int node = pod / size_.pods_per_node;
    if (++deleted_[node] == size_.volumes_per_node) failover_times_[node].moved = absl::Now();
  }
  const std::string after = PodText(pod);
  {
    absl::MutexLock lock(&mu_);
    for (const auto& line : {EventLine("DELETED", before), EventLine("ADDED", after)})
      writes_.push_back({++version_, "/api/v1/pods", line});
  }
  exchange.Reply(Json::object());
}

void HollowCluster::OnWrite(const std::string& write) {
  if (!absl::StartsWith(write, absl::StrCat("POST ", kFences))) return;
  int node = 0;
  const size_t number = write.rfind("node-") + 5;
  static_cast<void>(absl::SimpleAtoi(write.substr(number, write.rfind('.') - number), &node));
  absl::MutexLock lock(&mu_);
  failover_times_[node].decided = absl::Now();
}

HollowCluster::FailoverTimes HollowCluster::TimesOf(int node) const {
  absl::MutexLock lock(&mu_);
  const auto found = failover_times_.find(node);
  return found == failover_times_.end() ? FailoverTimes() : found->second;
}

void HollowCluster::PowerOff(int node) {
  SwallowConnects(node);
  off_at_[static_cast<size_t>(node)] = absl::ToUnixMicros(absl::Now());
}

// A listener whose queue is full does not answer a connection attempt.
void HollowCluster::SwallowConnects(int node) {
  const sockaddr_in at = SocketAddress(AddressOf(node), kubelet_port_);
  const auto* address = reinterpret_cast<const sockaddr*>(&at);
  absl::MutexLock lock(&mu_);
  sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(sockets_.back(), address, sizeof at) != 0 || ::listen(sockets_.back(), 0) != 0) return;
  for (int i = 0; i < 4; ++i) {
    sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(sockets_.back(), address, sizeof at));
  }
}

}  // namespace lunkeeper::fencing
