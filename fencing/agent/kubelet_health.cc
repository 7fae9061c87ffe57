#include "fencing/agent/kubelet_health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/periodic.h"

namespace lunkeeper {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::chrono::seconds kAnswerTimeout{1};
constexpr char kVersionCall[] = "/runtime.v1.RuntimeService/Version";

// Whether GET /healthz is answered with 200 in time.
bool PageAnswers(const std::string& address) {
  asio::io_context context;
  beast::tcp_stream stream(context);
  const auto where = ParseHostPort(address);
  boost::system::error_code error;
  const auto host = asio::ip::make_address(where ? where->host : "", error);
  if (error) return false;
  const asio::ip::tcp::endpoint endpoint(host, where->port);
  http::request<http::empty_body> request(http::verb::get, "/healthz", 11);
  request.set(http::field::host, address);
  http::response<http::string_body> response;
  beast::flat_buffer buffer;
  bool answered = false;
  stream.expires_after(kAnswerTimeout);
  stream.async_connect(endpoint, [&](const beast::error_code& connected) {
    if (connected) return;
    http::async_write(stream, request, [&](const beast::error_code& written, size_t) {
      if (written) return;
      http::async_read(stream, buffer, response, [&](const beast::error_code& read, size_t) {
        answered = !read && response.result() == http::status::ok;
      });
    });
  });
  context.run();
  return answered;
}

// The runtime's version, unread: any answer is one.
bool RuntimeAnswers(grpc::GenericStub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerTimeout);
  const grpc::ByteBuffer nothing(nullptr, 0);  // an empty VersionRequest
  grpc::ByteBuffer version;
  absl::Notification done;
  bool answered = false;
  stub.UnaryCall(&context, kVersionCall, grpc::StubOptions(), &nothing, &version,
                 [&](const grpc::Status& status) {
                   answered = status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                              status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
                   done.Notify();
                 });
  done.WaitForNotification();
  return answered;
}

class Watch final : public KubeletHealth {
 public:
  explicit Watch(const KubeletHealthOptions& options) : misses_(options.misses) {
    if (!options.healthz.empty())
      parts_.push_back({"kubelet", [address = options.healthz] { return PageAnswers(address); }});
    if (!options.runtime_socket.empty()) {
      auto stub = std::make_shared<grpc::GenericStub>(grpc::CreateChannel(
          absl::StrCat("unix://", options.runtime_socket), grpc::InsecureChannelCredentials()));
      parts_.push_back({"container runtime", [stub] { return RuntimeAnswers(*stub); }});
    }
    look_ = std::make_unique<Periodic>(options.every, [this] { Look(); });
  }

  bool Ok() const override { return ok_; }

 private:
  struct Part {
    std::string name;
    std::function<bool()> answers;
    bool known = false;  // it answered once
    int missed = 0;      // in a row
  };

  void Look() {
    bool ok = true;
    for (Part& part : parts_) {
      const bool was_hung = part.known && part.missed >= misses_;
      if (part.answers()) {
        part.known = true;
        part.missed = 0;
      } else {
        ++part.missed;
      }
      const bool hung = part.known && part.missed >= misses_;
      if (hung && !was_hung) LogWarn("agent", absl::StrCat("the ", part.name, " does not answer"));
      if (was_hung && !hung) LogInfo("agent", absl::StrCat("the ", part.name, " answers again"));
      ok = ok && !hung;
    }
    ok_ = ok;
  }

  const int misses_;
  std::vector<Part> parts_;  // the looking thread's own, once it runs
  std::atomic<bool> ok_ = true;
  std::unique_ptr<Periodic> look_;  // last: it uses the others
};

}  // namespace

std::unique_ptr<KubeletHealth> WatchKubelet(const KubeletHealthOptions& options) {
  return std::make_unique<Watch>(options);
}

}  // namespace lunkeeper
