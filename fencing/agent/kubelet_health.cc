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

// One thread asks every part in turn. Each part goes through these states:
//
//   unknown --answers--> well --`misses` times no answer--> hung --answers--> well
//
// Only "hung" counts against the node. A part that never answered stays unknown for ever, because a wrong
// address or a switched-off page must not look like a dead kubelet.
namespace lunkeeper {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

// Both parts answer within milliseconds on a busy node, too. A part that needs a second is stuck.
constexpr std::chrono::seconds kAnswerTimeout{1};
constexpr int kNeverAnswered = 30;  // times: it is not only starting
// The call of the CRI that needs no argument and changes nothing (runtime/v1/api.proto, RuntimeService).
constexpr char kVersionCall[] = "/runtime.v1.RuntimeService/Version";

// Whether GET /healthz is answered with 200 in time. Plain HTTP: kubelet serves this page without TLS on
// localhost:10248. The io_context runs on this thread and ends when the stream's time is up.
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

// Whether the runtime answers a Version call. Any answer will do, also an error: only UNAVAILABLE and
// DEADLINE_EXCEEDED come from gRPC itself here. The generic stub spares us a copy of the CRI's protocol.
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

class KubeletWatch final : public KubeletHealth {
 public:
  explicit KubeletWatch(const KubeletHealthOptions& options) : misses_(options.misses) {
    if (!options.healthz.empty())
      parts_.push_back({"kubelet", [address = options.healthz] { return PageAnswers(address); }});
    if (!options.runtime_socket.empty()) {
      auto stub = std::make_shared<grpc::GenericStub>(grpc::CreateChannel(
          absl::StrCat("unix://", options.runtime_socket), grpc::InsecureChannelCredentials()));
      parts_.push_back({"container runtime", [stub] { return RuntimeAnswers(*stub); }});
    }
    checks_ = std::make_unique<Periodic>(options.every, [this] { CheckParts(); });
  }

  bool IsWell() const override { return ok_; }

 private:
  struct Part {
    std::string name;
    std::function<bool()> answers;
    bool known = false;  // it answered once
    int missed = 0;      // in a row
  };

  static void NoteMissed(Part& part) {
    ++part.missed;
    if (!part.known && part.missed == kNeverAnswered)
      LogWarn("agent", absl::StrCat("the ", part.name,
                                    " has never answered: its end will not be noticed; see "
                                    "node.kubeletHealthz and node.runtimeSocket"));
  }

  // Logs only the transitions between well and hung.
  void CheckParts() {
    bool ok = true;
    for (Part& part : parts_) {
      const bool was_hung = part.known && part.missed >= misses_;
      if (part.answers()) {
        part.known = true;
        part.missed = 0;
      } else {
        NoteMissed(part);
      }
      const bool hung = part.known && part.missed >= misses_;
      if (hung && !was_hung) LogWarn("agent", absl::StrCat("the ", part.name, " does not answer"));
      if (was_hung && !hung) LogInfo("agent", absl::StrCat("the ", part.name, " answers again"));
      ok = ok && !hung;
    }
    ok_ = ok;
  }

  const int misses_;
  std::vector<Part> parts_;  // used by the checking thread only, once it runs
  std::atomic<bool> ok_ = true;
  std::unique_ptr<Periodic> checks_;  // last: its thread uses the other members
};

}  // namespace

std::unique_ptr<KubeletHealth> WatchKubelet(const KubeletHealthOptions& options) {
  return std::make_unique<KubeletWatch>(options);
}

}  // namespace lunkeeper
