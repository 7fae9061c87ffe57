#pragma once
// What the tests of the remote array share: certificates of their own, and the real service over TLS on
// loopback with fake arrays behind it. Everything is gone when the objects die.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "base/testing/test_host.h"
#include "devices/array/remote/array_service.h"
#include "devices/array/remote/remote_array.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper::testing {

// A folder with a certificate authority and what it has signed. For one thread.
class TestCa {
 public:
  TestCa();

  // Makes a certificate with these names ("DNS:…,IP:…"), under a file name that may be in use already; what
  // was there is replaced at once.
  TlsFiles Issue(const std::string& file, const std::string& names) const;
  const std::string& folder() const { return folder_.path(); }

 private:
  const TempDir folder_;
};

inline constexpr char kAgentNames[] = "DNS:localhost,IP:127.0.0.1";
inline constexpr char kControllerNames[] = "DNS:controller.c1.cluster.lunkeeper.io";

// One agent: a FakeArray for each cluster.
class TestAgent {
 public:
  explicit TestAgent(const TlsFiles& tls, std::string name = "a1", const WaitingLimits& waiting = {});
  ~TestAgent() { Stop(); }
  TestAgent(const TestAgent&) = delete;
  TestAgent& operator=(const TestAgent&) = delete;

  // Serves with what `wrap` makes of the real service; before Start, or between Stop and Start.
  using Service = array::v1::ArrayService::Service;
  void Wrap(const std::function<std::unique_ptr<Service>(Service&)>& wrap) { wrapped_ = wrap(*service_); }
  // On the same port as before.
  void Start();
  void Stop();
  // Refuses this certificate (PEM) from now on.
  void Revoke(const std::string& pem) {
    const absl::MutexLock lock(&mutex_);
    revoked_ = pem;
  }
  // Whether it is the array's now, as ArrayServiceOptions::confirm says.
  void SetServing(const absl::Status& serving) {
    const absl::MutexLock lock(&mutex_);
    serving_ = serving;
  }
  // Which gateway serves the array.
  void SetGateway(const std::optional<GatewayState>& gateway) {
    const absl::MutexLock lock(&mutex_);
    gateway_ = gateway;
  }
  // From a new start on, which copy of its pool it has; nothing: it is too old to say so.
  void SetIdentity(const std::optional<PoolIdentity>& identity);
  // Serves the arrays of this one, as a gateway of the same array does.
  void ShareArrays(const TestAgent& other) {
    for (const char* cluster : {"c1", "c2"}) SetArray(cluster, other.ArrayOf(cluster));
  }
  FakeArray& Of(const std::string& cluster = "c1") { return *ArrayOf(cluster); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  RemoteArrayOptions Options(const TlsFiles& tls) const {
    return {.name = name_, .addresses = {address()}, .server_name = "", .tls = tls};
  }

 private:
  std::shared_ptr<FakeArray> ArrayOf(const std::string& cluster) const {
    const absl::MutexLock lock(&mutex_);
    return arrays_.at(cluster);
  }
  void SetArray(const std::string& cluster, std::shared_ptr<FakeArray> array) {
    const absl::MutexLock lock(&mutex_);
    arrays_[cluster] = std::move(array);
  }

  const std::string name_;
  const TlsFiles tls_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<FakeArray>> arrays_ ABSL_GUARDED_BY(mutex_);
  std::string revoked_ ABSL_GUARDED_BY(mutex_);
  absl::Status serving_ ABSL_GUARDED_BY(mutex_);
  std::optional<GatewayState> gateway_ ABSL_GUARDED_BY(mutex_);
  ArrayServiceOptions options_;
  std::unique_ptr<array::v1::ArrayService::Service> service_;
  std::unique_ptr<Service> wrapped_;  // null: the real service is served
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace lunkeeper::testing
