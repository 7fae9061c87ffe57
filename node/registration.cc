#include "node/registration.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/unique_fd.h"
#include "registration/registration.grpc.pb.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

// Which file has the path: a socket made anew is another one.
std::optional<std::pair<dev_t, ino_t>> FileAt(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;
  return std::make_pair(info.st_dev, info.st_ino);
}

bool Answers(const std::string& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN;  // its queue is full, so there is one
}

class KubeletRegistration final : public Registration, public pluginregistration::Registration::Service {
 public:
  explicit KubeletRegistration(const RegistrationOptions& options)
      : options_(options),
        path_(options.directory + "/lunkeeper-reg.sock"),
        watch_(std::make_unique<Periodic>(kLookEvery, [this] { Look(); })) {}

  ~KubeletRegistration() override {
    watch_.reset();
    Close();
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
      Became(absl::OkStatus());
    } else {
      Failed(absl::StrCat("kubelet refused this driver: ", answer->error()));
    }
    return grpc::Status::OK;
  }

 private:
  void Look() {
    const auto there = FileAt(path_);
    if (server_ != nullptr && there == socket_) return;
    if (server_ != nullptr) LogInfo("registration", "the socket is gone; making it anew", {{"path", path_}});
    const bool taken = there && there != socket_ && Answers(path_);
    Close();
    if (taken) return Failed(absl::StrCat(path_, ": another process answers there; stop it"));
    Open();
  }

  // Listens under a name that kubelet ignores and then renames, which replaces a dead socket at once, and
  // leaves gRPC no path to remove that may be another process's by then.
  void Open() {
    const std::string hidden = absl::StrCat(options_.directory, "/.lunkeeper-reg.", ::getpid());
    if (hidden.size() >= sizeof(sockaddr_un::sun_path)) {
      return Failed(absl::StrCat(path_, ": too long for a socket; choose a shorter directory"));
    }
    grpc::ServerBuilder builder;
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    builder.AddListeningPort(absl::StrCat("unix:", hidden), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    const mode_t mask = ::umask(0177);
    server_ = builder.BuildAndStart();
    ::umask(mask);
    socket_ = FileAt(hidden);
    if (server_ == nullptr || ::rename(hidden.c_str(), path_.c_str()) != 0) {
      Close();
      return Failed(absl::StrCat(path_, ": cannot listen there; see that the directory exists"));
    }
    Became(absl::UnavailableError(absl::StrCat("kubelet has not asked at ", path_, " yet")));
  }

  void Close() {
    if (server_ == nullptr) return;
    if (FileAt(path_) == socket_) ::unlink(path_.c_str());
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
    server_.reset();
    socket_.reset();
  }

  void Failed(const std::string& why) {
    const absl::Status status = absl::FailedPreconditionError(why);
    if (Status() != status) LogError("registration", why);
    Became(status);
  }
  void Became(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_ = status;
  }

  const RegistrationOptions options_;
  const std::string path_;

  // The watching thread's, and after it the destructor's.
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
