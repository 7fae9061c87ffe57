// Three kinds of threads. One accepts. A few hand sockets over to gRPC: it may then use the thread that
// called it to read from the connection for as long as data come. And one looks at the connections, four
// times a second, and at the unknown ones every 25 ms, since gRPC may need time that grows with the square of
// what an unfinished header holds: TCP_INFO says how much each has sent, whether or not gRPC has read it.
//
// What a connection has sent counts from `base`: where it stood at the last look before its last good call.
#include "plugin/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // has tcpi_bytes_received, unlike netinet/tcp.h
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/periodic.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(250);
constexpr absl::Duration kLookAtUnknownEvery = absl::Milliseconds(25);
constexpr absl::Duration kLogEvery = absl::Seconds(1);
// As in gRPC's own listener: what is sent and not acknowledged for this long ends the connection.
constexpr unsigned kUserTimeoutMs = 15'000;
// What a peer has sent when its connection is ended, gRPC still reads; so the kernel keeps little of it.
constexpr int kReceiveBytes = 64 << 10;
constexpr int kAcceptAtOnce = 64;
constexpr size_t kHandOverThreads = 4;
constexpr size_t kMostAddresses = 100'000;
constexpr int kEstablished = 1;  // TCP_ESTABLISHED of the kernel's tcp_states.h

// Monotonic: only differences mean anything.
absl::Time Now() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

struct Peer {
  std::string name;     // as gRPC names it: ipv4:10.0.0.1:4242, ipv6:%5Bfd00::1%5D:4242
  std::string address;  // without the port
};

Peer PeerOf(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return {absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port)), text};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
    return {absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port)), text};
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return {absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(v6.sin6_port)), text};
}

absl::Status Bind(int fd, const sockaddr* address, socklen_t length) {
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  // Sockets that are accepted inherit these.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof kUserTimeoutMs);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBytes, sizeof kReceiveBytes);
  if (::bind(fd, address, length) != 0) return absl::ErrnoToStatus(errno, "bind");
  if (::listen(fd, SOMAXCONN) != 0) return absl::ErrnoToStatus(errno, "listen");
  return absl::OkStatus();
}

// "All addresses" is one socket for both families where the kernel has both.
absl::StatusOr<UniqueFd> ListenOn(const std::string& address) {
  const auto where = ParseHostPort(address);
  if (!where) return absl::InvalidArgumentError("want host:port");
  const bool all = where->host.empty() || where->host == "0.0.0.0" || where->host == "::";
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  absl::Status status = absl::NotFoundError("the host has no address");
  for (const char* host : {all ? "::" : where->host.c_str(), all ? "0.0.0.0" : ""}) {
    addrinfo* found = nullptr;
    if (*host == '\0' || ::getaddrinfo(host, std::to_string(where->port).c_str(), &hints, &found) != 0)
      continue;
    UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    status = fd ? Bind(fd.get(), found->ai_addr, found->ai_addrlen) : absl::ErrnoToStatus(errno, "socket");
    ::freeaddrinfo(found);
    if (status.ok()) return fd;
  }
  return status;
}

int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  // The port is in the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

class TcpGate final : public ConnectionGate {
 public:
  TcpGate(UniqueFd listener, const ConnectionLimits& limits, Metrics* metrics)
      : listener_(std::move(listener)),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        port_(PortOf(listener_.get())),
        limits_(limits),
        metrics_(metrics) {}
  ~TcpGate() override {
    Stop();
    for (std::thread& each : handing_over_) each.join();
  }

  int port() const override { return port_; }
  void Start(HandOver hand_over) override {
    hand_over_ = std::move(hand_over);
    for (size_t i = 0; i < kHandOverThreads; ++i)
      handing_over_.emplace_back([this] { HandOverConnections(); });
    accepting_ = std::thread([this] { AcceptConnections(); });
    looking_ = std::make_unique<Periodic>(kLookAtUnknownEvery, [this] { LookAtConnections(); });
  }
  void Stop() override {
    {
      const absl::MutexLock lock(&queue_mutex_);
      stopped_ = true;
      queue_.clear();
    }
    ::eventfd_write(stop_.get(), 1);
    if (accepting_.joinable()) accepting_.join();
    listener_.Reset();
  }

  void NoteGood(const std::string& peer) override {
    const absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    connection.good = true;
    connection.bad_calls = 0;
    if (!connection.known) unknown_.erase(peer);
    connection.known = true;
  }

  void NoteBad(const std::string& peer) override {
    const absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(peer);
    if (found == connections_.end() || limits_.bad_calls == 0) return;
    if (++found->second.bad_calls > limits_.bad_calls) ShutOut(found, "too many wrong calls");
  }

 private:
  struct Connection {
    UniqueFd fd;  // a duplicate of gRPC's
    std::string address;
    absl::Time since;
    bool known = false;
    bool good = false;              // a call was answered well since the last look
    uint64_t base = 0, looked = 0;  // bytes received
    int bad_calls = 0;
  };
  using Connections = std::unordered_map<std::string, Connection>;

  struct Address {
    size_t connections = 0;
    double may_open = 0;
    absl::Time filled, shut_out_until = absl::InfinitePast();
  };

  void AcceptConnections() {
    while (AwaitConnection()) AcceptSome();
  }

  // False: it is to stop.
  bool AwaitConnection() {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    // Out of descriptors the listener stays readable; waiting without it keeps this loop from spinning.
    ::poll(fds, std::exchange(pausing_, false) ? 1 : 2,
           static_cast<int>(absl::ToInt64Milliseconds(kLookEvery)));
    return (fds[0].revents & POLLIN) == 0;
  }

  void HandOverConnections() {
    for (;;) {
      UniqueFd fd;
      {
        const absl::MutexLock lock(&queue_mutex_);
        const auto due = [this]()
                             ABSL_SHARED_LOCKS_REQUIRED(queue_mutex_) { return stopped_ || !queue_.empty(); };
        queue_mutex_.Await(absl::Condition(&due));
        if (stopped_) return;
        fd = std::move(queue_.front());
        queue_.pop_front();
      }
      hand_over_(std::move(fd));
    }
  }

  void LookAtConnections() {
    const absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    if (now < look_at_) return LookAtUnknown(now);
    look_at_ = now + kLookEvery;
    for (auto each = connections_.begin(); each != connections_.end();) LookAt(each++, now);
    ForgetAddresses(now);
  }

  void AcceptSome() {
    for (int i = 0; i < kAcceptAtOnce; ++i) {
      sockaddr_storage from{};
      socklen_t length = sizeof from;
      UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &length,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
        // These pass when other connections end. Any other error was that one caller's.
        pausing_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        return;
      }
      UniqueFd duplicate(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
      if (!duplicate || !Admit(PeerOf(from), std::move(duplicate))) continue;
      const absl::MutexLock lock(&queue_mutex_);
      queue_.push_back(std::move(fd));
    }
  }

  bool Admit(const Peer& peer, UniqueFd fd) {
    const absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    // What strangers can have remembered here is bounded; addresses that are known go on.
    if (addresses_.size() >= kMostAddresses && !addresses_.contains(peer.address))
      return Refuse(peer.address, "too many addresses");
    auto [at, is_new] = addresses_.try_emplace(peer.address);
    Address& address = at->second;
    if (is_new) address.may_open = limits_.new_at_once, address.filled = now;
    address.may_open =
        std::min(limits_.new_at_once,
                 address.may_open + absl::ToDoubleSeconds(now - address.filled) * limits_.new_per_second);
    address.filled = now;
    if (now < address.shut_out_until) return Refuse(peer.address, "shut out");
    if (address.may_open < 1) return Refuse(peer.address, "too fast");
    address.may_open -= 1;
    if (connections_.size() >= limits_.connections) return Refuse(peer.address, "too many in all");
    if (address.connections >= limits_.per_address && !EndOldestUnknown(peer.address))
      return Refuse(peer.address, "too many");
    // An old connection from the same port has ended, and was not looked at since.
    if (const auto old = connections_.find(peer.name); old != connections_.end()) Forget(old);
    ++address.connections;
    connections_[peer.name] = {.fd = std::move(fd), .address = peer.address, .since = now};
    unknown_.insert(peer.name);
    return true;
  }

  // Always false.
  bool Refuse(const std::string& address, const char* why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    metrics_->CountEvent("lunkeeper_connections_refused_total", "Connections refused or ended, by why",
                         {{"why", why}});
    const absl::Time now = Now();
    ++unsaid_;
    if (now - said_ < kLogEvery) return false;
    LogWarn("server", "connections are refused",
            {{"address", address}, {"why", why}, {"since_the_last_line", absl::StrCat(unsaid_)}});
    said_ = now;
    unsaid_ = 0;
    return false;
  }

  // A stranger's connections give way to newer ones of the same address: one of them may be a node's.
  bool EndOldestUnknown(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto oldest = connections_.end();
    for (const std::string& name : unknown_) {
      const auto each = connections_.find(name);
      if (each->second.address != address) continue;
      if (oldest == connections_.end() || each->second.since < oldest->second.since) oldest = each;
    }
    if (oldest == connections_.end()) return false;
    End(oldest, "made room for a newer one");
    return true;
  }

  void LookAtUnknown(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto name = unknown_.begin(); name != unknown_.end();) LookAt(connections_.find(*name++), now);
  }

  void LookAt(Connections::iterator at, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Connection& connection = at->second;
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(connection.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
        info.tcpi_state != kEstablished)
      return Forget(at);
    if (std::exchange(connection.good, false)) connection.base = connection.looked;
    connection.looked = info.tcpi_bytes_received;
    const int64_t most = connection.known ? limits_.bytes_known : limits_.bytes_unknown;
    if (connection.looked - connection.base > static_cast<uint64_t>(most))
      return ShutOut(at, "too much data");
    if (!connection.known && now - connection.since > limits_.time_unknown) End(at, "idle");
  }

  void ShutOut(Connections::iterator at, const char* why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    addresses_[at->second.address].shut_out_until = Now() + limits_.shut_out;
    End(at, why);
  }

  // gRPC sees the connection end, as if the peer had closed it.
  void End(Connections::iterator at, const char* why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Refuse(at->second.address, why);
    ::shutdown(at->second.fd.get(), SHUT_RDWR);
    Forget(at);
  }

  void Forget(Connections::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    --addresses_[at->second.address].connections;
    unknown_.erase(at->first);
    connections_.erase(at);
  }

  void ForgetAddresses(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // An entry may go when it says no more than a new one would: its bucket is full again.
    const absl::Duration full = absl::Seconds(limits_.new_at_once / limits_.new_per_second);
    std::erase_if(addresses_, [&](const auto& each) {
      const Address& address = each.second;
      return address.connections == 0 && now - address.filled > full && now > address.shut_out_until;
    });
  }

  UniqueFd listener_;
  const UniqueFd stop_;
  const int port_;
  const ConnectionLimits limits_;
  Metrics* const metrics_;
  HandOver hand_over_;
  bool pausing_ = false;  // the accepting thread's

  absl::Mutex queue_mutex_;
  bool stopped_ ABSL_GUARDED_BY(queue_mutex_) = false;
  std::deque<UniqueFd> queue_ ABSL_GUARDED_BY(queue_mutex_);  // accepted, to be handed over

  absl::Mutex mutex_;
  Connections connections_ ABSL_GUARDED_BY(mutex_);  // by gRPC's name of the peer
  std::set<std::string> unknown_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Address> addresses_ ABSL_GUARDED_BY(mutex_);
  absl::Time said_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int unsaid_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time look_at_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> handing_over_;
  std::thread accepting_;
  std::unique_ptr<Periodic> looking_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(const std::string& address,
                                                                     const ConnectionLimits& limits,
                                                                     Metrics* metrics) {
  absl::StatusOr<UniqueFd> listener = ListenOn(address);
  if (!listener.ok())
    return absl::UnavailableError(
        absl::StrCat("listen on ", address, ": ", std::string(listener.status().message())));
  return std::make_unique<TcpGate>(*std::move(listener), limits, metrics);
}

}  // namespace lunkeeper
