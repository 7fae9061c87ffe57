// A thread compares, once a second, the file at the socket's path with the one that this process made:
//
//   ours           nothing to do
//   absent         listen anew: kubelet was restarted, or the folder cleaned
//   another, dead  a killed predecessor's: replaced
//   another, live  left alone until its process ends; reported by Status()
//
// kubelet watches the folder and connects to each new socket: GetInfo tells it where the driver listens, then
// NotifyRegistrationStatus tells us whether it took the driver. Both arrive on gRPC's threads.
#include "node/registration.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/unix_socket.h"
#include "registration/registration.grpc.pb.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kCheckInterval = absl::Seconds(1);

// Which file has the path: a socket made anew is another one.
std::optional<std::pair<dev_t, ino_t>> FileAt(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;
  return std::make_pair(info.st_dev, info.st_ino);
}

class KubeletRegistration final : public Registration, public pluginregistration::Registration::Service {
 public:
  explicit KubeletRegistration(const RegistrationOptions& options)
      : options_(options),
        path_(options.directory + "/lunkeeper-reg.sock"),
        watch_(std::make_unique<Periodic>(kCheckInterval, [this] { CheckSocket(); })) {}

  ~KubeletRegistration() override {
    watch_.reset();
    CloseSocket();
  }

  absl::Status Status() const override {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("CSIPlugin");
    info->set_name(options_.driver);
    info->set_endpoint(options_.endpoint);
    info->add_supported_versions("1.0.0");  // kubelet's word for CSI 1.x
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* answer,
                                        pluginregistration::RegistrationStatusResponse*) override {
    if (answer->plugin_registered()) {
      LogInfo("registration", "kubelet has registered this driver");
      SetStatus(absl::OkStatus());
    } else {
      SetFailed(absl::StrCat("kubelet refused this driver: ", answer->error()));
    }
    return grpc::Status::OK;
  }

 private:
  void CheckSocket() {
    const auto there = FileAt(path_);
    if (server_ != nullptr && there == socket_) return;
    if (server_ != nullptr) LogInfo("registration", "the socket is gone; making it anew", {{"path", path_}});
    const bool taken = there && there != socket_ && IsListening(path_);
    CloseSocket();
    if (taken) return SetFailed(absl::StrCat(path_, ": another process answers there; stop it"));
    OpenSocket();
  }

  // Listens under a hidden name, which kubelet ignores, and renames the socket then. That replaces a dead one
  // in a single step. It also keeps gRPC, which removes the path it was given when it stops, from removing a
  // socket that a successor has made by then.
  void OpenSocket() {
    const std::string hidden = absl::StrCat(options_.directory, "/.lunkeeper-reg.", ::getpid());
    if (hidden.size() >= sizeof(sockaddr_un::sun_path)) {
      return SetFailed(absl::StrCat(path_, ": too long for a socket; choose a shorter directory"));
    }
    grpc::ServerBuilder builder;
    // Two calls in the life of a node: the fewest threads that gRPC can serve with.
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    builder.AddListeningPort(absl::StrCat("unix:", hidden), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    // Only root may connect, from the socket's first moment on.
    const mode_t mask = ::umask(0177);
    server_ = builder.BuildAndStart();
    ::umask(mask);
    socket_ = FileAt(hidden);
    if (server_ == nullptr || ::rename(hidden.c_str(), path_.c_str()) != 0) {
      CloseSocket();
      return SetFailed(absl::StrCat(path_, ": cannot listen there; see that the directory exists"));
    }
    SetStatus(absl::UnavailableError(absl::StrCat("kubelet has not asked at ", path_, " yet")));
  }

  void CloseSocket() {
    if (server_ == nullptr) return;
    if (FileAt(path_) == socket_) ::unlink(path_.c_str());
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
    server_.reset();
    socket_.reset();
  }

  void SetFailed(const std::string& why) {
    const absl::Status status = absl::FailedPreconditionError(why);
    if (Status() != status) LogError("registration", why);
    SetStatus(status);
  }
  void SetStatus(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_ = status;
  }

  const RegistrationOptions options_;
  const std::string path_;

  // Of the watching thread, and of the destructor once that thread has ended.
  std::unique_ptr<grpc::Server> server_;
  std::optional<std::pair<dev_t, ino_t>> socket_;

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("kubelet has not asked yet");

  std::unique_ptr<Periodic> watch_;  // last: it uses the others
};

}  // namespace

std::unique_ptr<Registration> StartRegistration(const RegistrationOptions& options) {
  return std::make_unique<KubeletRegistration>(options);
}

}  // namespace lunkeeper
