#include "fencing/kube/testing/real_api_fixture.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace lunkeeper::kube {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartTime = absl::Seconds(120);

std::string ServerProgram() {
  const char* folder = std::getenv("LUNKEEPER_KUBE_BIN");
  return absl::StrCat(folder == nullptr ? LUNKEEPER_SOURCE_DIR "/.cache/kube/bin" : folder,
                      "/kube-apiserver");
}

void Must(const std::vector<std::string>& command) {
  const auto result = RunCommand(command, absl::Now() + absl::Seconds(30));
  if (!result.ok() || result->exit_code != 0) throw std::runtime_error("failed: " + command[0]);
}

void Reap(pid_t& pid) {
  if (pid <= 0) return;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  pid = -1;
}

}  // namespace

RealApi::RealApi()
    : etcd_port_(testing::FreePort()), peer_port_(testing::FreePort()), port_(testing::FreePort()) {
  MakeFiles();
  Start();
}

RealApi::~RealApi() { Kill(); }

void RealApi::MakeFiles() const {
  Must({"openssl", "genrsa", "-out", directory_ / "sa.key", "2048"});
  Must({"openssl", "rsa", "-in", directory_ / "sa.key", "-pubout", "-out", directory_ / "sa.pub"});
  std::ofstream(directory_ / "token") << "the-admins-token\n";
  std::ofstream(directory_ / "tokens.csv") << "the-admins-token,admin,admin,\"system:masters\"\n";
}

pid_t RealApi::Spawn(const std::string& log, const std::vector<std::string>& command) const {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const UniqueFd out(::open((directory_ / log).c_str(), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600));
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(out.get(), 1);
  ::dup2(out.get(), 2);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void RealApi::Start() {
  const std::string etcd = absl::StrCat("http://127.0.0.1:", etcd_port_);
  etcd_ = Spawn("etcd.log", {"/usr/bin/etcd", "--data-dir", directory_ / "etcd", "--listen-client-urls", etcd,
                             "--advertise-client-urls", etcd, "--unsafe-no-fsync", "--listen-peer-urls",
                             absl::StrCat("http://127.0.0.1:", peer_port_)});
  server_ = Spawn("apiserver.log",
                  {ServerProgram(), "--etcd-servers=" + etcd, "--bind-address=127.0.0.1",
                   "--advertise-address=127.0.0.1", absl::StrCat("--secure-port=", port_),
                   "--cert-dir=" + directory_.path(), "--service-account-key-file=" + directory_ / "sa.pub",
                   "--service-account-signing-key-file=" + directory_ / "sa.key",
                   "--service-account-issuer=https://test", "--service-cluster-ip-range=10.96.0.0/16",
                   "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
                   "--token-auth-file=" + directory_ / "tokens.csv", "--endpoint-reconciler-type=none"});
  const absl::Time end = absl::Now() + kStartTime;
  const auto client = Client();
  while (!client->Get({{"", "v1", "namespaces"}, "", "default"}, {absl::Now() + absl::Seconds(5)}).ok()) {
    if (absl::Now() > end || ::waitpid(server_, nullptr, WNOHANG) != 0)
      throw std::runtime_error("the API server did not start");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // between two looks
  }
}

void RealApi::Kill() {
  Reap(server_);
  Reap(etcd_);
}

void RealApi::Freeze() {
  ::kill(server_, SIGSTOP);
  ::waitpid(server_, nullptr, WUNTRACED);
}

void RealApi::Thaw() { ::kill(server_, SIGCONT); }

void RealApi::Save() { fs::copy(directory_ / "etcd", directory_ / "saved", fs::copy_options::recursive); }

void RealApi::Restore() {
  fs::remove_all(directory_ / "etcd");
  fs::rename(directory_ / "saved", directory_ / "etcd");
}

KubeConfig RealApi::Config() const {
  KubeConfig config;
  config.server = absl::StrCat("https://127.0.0.1:", port_);
  config.ca_file = directory_ / "apiserver.crt";
  config.token_file = directory_ / "token";
  return config;
}

std::unique_ptr<KubeClient> RealApi::Client() const { return MakeKubeClient(Config()).value(); }

}  // namespace lunkeeper::kube
