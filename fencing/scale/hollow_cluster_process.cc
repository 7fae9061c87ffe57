#include "fencing/scale/hollow_cluster_process.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace lunkeeper::fencing {
namespace {

constexpr int kSlots = 50;   // in which the heartbeats of half a second are spread
constexpr int kStride = 31;  // from the first node of a slot to the next slot's, so that neighbours are apart
constexpr absl::Duration kSlot = absl::Milliseconds(10), kIdleTimeout = absl::Minutes(1);
constexpr size_t kMostBytes = 64 << 10;

// HeartbeatSource of all machines that are on, each half a second, until nobody reads them.
class HeartbeatSource {
 public:
  HeartbeatSource(const HollowCluster& hollow_cluster, const HollowClusterSize& size, int socket)
      : hollow_cluster_(hollow_cluster),
        size_(size),
        socket_(socket),
        last_(static_cast<size_t>(size.nodes)) {}

  void Run() {
    for (absl::Time at = absl::Now();; at += kSlot) {
      if (!SendSlot(slot_++ % kSlots)) return;
      absl::SleepFor(at + kSlot - absl::Now());
    }
  }
  absl::Time LastOf(int node) {
    absl::MutexLock lock(&mutex_);
    return last_[static_cast<size_t>(node)];
  }

 private:
  bool SendSlot(int slot) {
    std::vector<int> nodes;
    for (int node = slot * kStride % kSlots; node < size_.nodes; node += kSlots)
      if (!hollow_cluster_.IsOff(node)) nodes.push_back(node);
    if (nodes.empty()) return true;
    absl::MutexLock lock(&mutex_);
    for (const int node : nodes) last_[static_cast<size_t>(node)] = absl::Now();
    return ::send(socket_, nodes.data(), nodes.size() * sizeof(int), MSG_NOSIGNAL) > 0;
  }

  const HollowCluster& hollow_cluster_;
  const HollowClusterSize size_;
  const int socket_;
  int slot_ = 0;
  absl::Mutex mutex_;
  std::vector<absl::Time> last_ ABSL_GUARDED_BY(mutex_);
};

// In microseconds; negative: never.
using PowerOffReply = std::array<int64_t, 2>;

PowerOffReply PowerOffNode(HollowCluster& hollow_cluster, HeartbeatSource& heartbeats, int node) {
  const absl::Time before = heartbeats.LastOf(node);
  while (heartbeats.LastOf(node) == before) absl::SleepFor(absl::Milliseconds(1));
  hollow_cluster.PowerOff(node);
  const absl::Time last = heartbeats.LastOf(node);
  while (absl::Now() - last < kIdleTimeout) {
    const HollowCluster::FailoverTimes times = hollow_cluster.TimesOf(node);
    if (times.moved != absl::InfinitePast())
      return {absl::ToInt64Microseconds(times.decided - last),
              absl::ToInt64Microseconds(times.moved - times.decided)};
    absl::SleepFor(absl::Milliseconds(5));
  }
  return {-1, -1};
}

// The whole incarnation of the other process.
void ServeCluster(const HollowClusterSize& size, int heartbeats_socket, int control) {
  HollowCluster hollow_cluster(size);
  const kube::KubeConfig config = hollow_cluster.Config();
  const std::string words = absl::StrCat(config.server, " ", config.ca_file, " ", config.token_file);
  if (::send(control, words.data(), words.size(), 0) < 0) return;
  HeartbeatSource heartbeats(hollow_cluster, size, heartbeats_socket);
  std::jthread sending([&heartbeats] { heartbeats.Run(); });
  for (int node = 0; ::recv(control, &node, sizeof node, 0) > 0;) {
    const PowerOffReply reply = PowerOffNode(hollow_cluster, heartbeats, node);
    static_cast<void>(::send(control, &reply, sizeof reply, MSG_NOSIGNAL));
  }
}

}  // namespace

HollowClusterProcess::HollowClusterProcess(const HollowClusterSize& size) {
  int heartbeats[2], control[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, heartbeats) != 0 ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0)
    throw std::runtime_error("socketpair");
  pid_ = ::fork();
  const int side = pid_ == 0 ? 1 : 0;
  ::close(heartbeats[1 - side]);
  ::close(control[1 - side]);
  if (pid_ == 0) {
    ServeCluster(size, heartbeats[1], control[1]);
    ::_exit(0);
  }
  heartbeats_ = heartbeats[0];
  control_ = control[0];
  std::string words(kMostBytes, '\0');
  words.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(control_, words.data(), words.size(), 0))));
  const std::vector<std::string> parts = absl::StrSplit(words, ' ');
  if (parts.size() != 3) throw std::runtime_error("the hollow cluster does not start");
  config_.server = parts[0];
  config_.ca_file = parts[1];
  config_.token_file = parts[2];
}

HollowClusterProcess::~HollowClusterProcess() {
  EndHeartbeats();
  ::close(heartbeats_);
  ::close(control_);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<int> HollowClusterProcess::ReadHeartbeats() {
  std::vector<int> nodes(kMostBytes / sizeof(int));
  const ssize_t bytes = ::recv(heartbeats_, nodes.data(), nodes.size() * sizeof(int), 0);
  nodes.resize(bytes > 0 ? static_cast<size_t>(bytes) / sizeof(int) : 0);
  return nodes;
}

void HollowClusterProcess::EndHeartbeats() { ::shutdown(heartbeats_, SHUT_RDWR); }

std::optional<HollowClusterProcess::Times> HollowClusterProcess::PowerOff(int node) {
  PowerOffReply reply = {-1, -1};
  if (::send(control_, &node, sizeof node, MSG_NOSIGNAL) < 0 ||
      ::recv(control_, &reply, sizeof reply, 0) < 0 || reply[0] < 0)
    return std::nullopt;
  return Times{absl::Microseconds(reply[0]), absl::Microseconds(reply[1])};
}

}  // namespace lunkeeper::fencing
