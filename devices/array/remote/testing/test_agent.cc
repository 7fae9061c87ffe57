#include "devices/array/remote/testing/test_agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace lunkeeper::testing {
namespace {

void Run(const std::string& command) {
  const int status = std::system((command + " 2>/dev/null").c_str());
  if (status != 0) throw std::runtime_error(command + ": it fails; is openssl installed?");
}

constexpr char kNewKey[] = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1";

}  // namespace

TestCa::TestCa() {
  Run("openssl req -x509 " + std::string(kNewKey) + " -subj /CN=test-ca -keyout " + folder_ / "ca.key" +
      " -out " + folder_ / "ca.crt");
}

TlsFiles TestCa::Issue(const std::string& file, const std::string& names) const {
  const std::string path = folder_ / file;
  Run("openssl req -x509 -CA " + folder_ / "ca.crt" + " -CAkey " + folder_ / "ca.key" + " " + kNewKey +
      " -subj /CN=" + file + " -addext basicConstraints=critical,CA:FALSE" +
      (names.empty() ? "" : " -addext subjectAltName=" + names) + " -keyout " + path + ".key.new -out " +
      path + ".crt.new");
  std::filesystem::rename(path + ".key.new", path + ".key");
  std::filesystem::rename(path + ".crt.new", path + ".crt");
  return {.certificate = path + ".crt", .key = path + ".key", .ca = folder_ / "ca.crt"};
}

TestAgent::TestAgent(const TlsFiles& tls, std::string name, const WaitingLimits& waiting)
    : name_(std::move(name)), tls_(tls) {
  for (const char* cluster : {"c1", "c2"})
    SetArray(cluster, std::make_shared<FakeArray>(FakeArrayOptions{.name = name_}));
  options_.name = name_;
  options_.view = [this](const ClusterId& cluster) { return ArrayOf(cluster.value()); };
  options_.serving = [this] { return Of().GetCapacity().status(); };
  options_.check_certificate = [this](const std::string& pem) {
    const absl::MutexLock lock(&mutex_);
    return pem == revoked_ ? absl::PermissionDeniedError("it is revoked") : absl::OkStatus();
  };
  options_.confirm = [this] {
    const absl::MutexLock lock(&mutex_);
    return serving_;
  };
  options_.gateway = [this] {
    const absl::MutexLock lock(&mutex_);
    return gateway_;
  };
  options_.waiting = waiting;
  SetIdentity(PoolIdentity{.lineage = "1f"});
}

void TestAgent::SetIdentity(const std::optional<PoolIdentity>& identity) {
  Stop();
  options_.identity = nullptr;
  if (identity) options_.identity = [identity] { return *identity; };
  service_ = MakeArrayService(options_);
  Start();
}

void TestAgent::Start() {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), MutualTlsServer(tls_).value(), &port_);
  builder.RegisterService(wrapped_ ? wrapped_.get() : service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw std::runtime_error("the agent cannot listen on " + address());
}

void TestAgent::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

}  // namespace lunkeeper::testing
