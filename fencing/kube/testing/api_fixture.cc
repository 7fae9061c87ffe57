#include "fencing/kube/testing/api_fixture.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/ssl.hpp>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/subprocess.h"

namespace lunkeeper::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using TlsStream = beast::ssl_stream<Tcp::socket>;

void Must(const std::vector<std::string>& command) {
  const auto result = RunCommand(command, absl::Now() + absl::Seconds(20));
  if (!result.ok() || result->exit_code != 0)
    throw std::runtime_error(
        absl::StrCat(command[0], ": ", result.ok() ? result->output : result.status().ToString()));
}

std::string Decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t byte = 0;
    if (text[i] == '%' && absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte)) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

class TlsExchange final : public Exchange {
 public:
  TlsExchange(TlsStream& stream, const http::request<http::string_body>& message) : stream_(stream) {
    method = std::string(message.method_string());
    const std::string target(message.target());
    const std::pair<std::string, std::string> halves = absl::StrSplit(target, absl::MaxSplits('?', 1));
    path = Decoded(halves.first);
    for (const auto field : absl::StrSplit(halves.second, '&', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> sides = absl::StrSplit(field, absl::MaxSplits('=', 1));
      query[sides.first] = Decoded(sides.second);
    }
    const std::string authorization(message[http::field::authorization]);
    token = authorization.substr(std::min(authorization.size(), std::string("Bearer ").size()));
    content_type = std::string(message[http::field::content_type]);
    body = message.body();
  }

  using Exchange::Reply;
  void Reply(int status, const std::string& text, const std::string& more_headers) override {
    Write(absl::StrCat("HTTP/1.1 ", status, " Said\r\nContent-Length: ", text.size(), "\r\n", more_headers,
                       "\r\n", text));
  }
  void Begin() override { Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); }
  void Chunk(const std::string& text) override {
    Write(absl::StrCat(absl::Hex(text.size()), "\r\n", text, "\r\n"));
  }
  void End() override { Write("0\r\n\r\n"); }
  void Cut() override {
    ::shutdown(stream_.next_layer().native_handle(), SHUT_RDWR);
    cut_ = true;
  }
  bool Hold(absl::Duration time) override {
    pollfd client{.fd = stream_.next_layer().native_handle(), .events = POLLIN | POLLRDHUP, .revents = 0};
    return ::poll(&client, 1, static_cast<int>(absl::ToInt64Milliseconds(time))) == 0;
  }
  void Hang() override {
    char byte = 0;
    beast::error_code error;
    stream_.read_some(asio::buffer(&byte, 1), error);
    cut_ = true;
  }
  bool cut() const { return cut_; }

 private:
  void Write(const std::string& text) {
    beast::error_code error;
    asio::write(stream_, asio::buffer(text), error);
    if (error) cut_ = true;
  }

  TlsStream& stream_;
  bool cut_ = false;
};

}  // namespace

void Exchange::Refuse(int status, const std::string& reason, const std::string& message,
                      const std::string& more_headers) {
  const Json refusal = {{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
                        {"message", message}, {"reason", reason},   {"code", status}};
  Reply(status, ToText(refusal), more_headers);
}

void Exchange::Event(const std::string& type, const Json& object) {
  Chunk(ToText({{"type", type}, {"object", object}}) + "\n");
}

struct ApiFixture::Tls {
  asio::io_context io;
  asio::ssl::context context{asio::ssl::context::tls_server};
  Tcp::acceptor acceptor{io, Tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
};

struct ApiFixture::Session {
  Session(Tcp::socket socket, asio::ssl::context& context) : stream(std::move(socket), context) {}
  TlsStream stream;
  int number = 0;
  std::thread thread;
};

ApiFixture::ApiFixture(Handler handler) : handler_(std::move(handler)) {
  MakeCertificates();
  WriteToken("first-token");
  tls_ = std::make_unique<Tls>();
  tls_->context.use_certificate_chain_file(directory_ / "server.crt");
  tls_->context.use_private_key_file(directory_ / "server.key", asio::ssl::context::pem);
  acceptor_ = std::thread([this] { Accept(); });
}

ApiFixture::~ApiFixture() {
  {
    absl::MutexLock lock(&mu_);
    closing_ = true;
  }
  ::shutdown(tls_->acceptor.native_handle(), SHUT_RDWR);
  acceptor_.join();
  CutAll();
  std::list<Session> sessions;
  {
    absl::MutexLock lock(&mu_);
    sessions.swap(sessions_);
  }
  for (Session& session : sessions) session.thread.join();
}

void ApiFixture::MakeCertificates() const {
  const auto self_signed = [this](const std::string& name, const std::string& subject) {
    Must({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
          "-days", "2", "-subj", subject, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
          directory_ / (name + ".key"), "-out", directory_ / (name + ".crt")});
  };
  self_signed("server", "/CN=api");  // its own CA
  self_signed("other-ca", "/CN=other");
}

void ApiFixture::Accept() {
  while (true) {
    Tcp::socket socket(tls_->io);
    beast::error_code error;
    tls_->acceptor.accept(socket, error);
    absl::MutexLock lock(&mu_);
    if (closing_) return;
    if (error) continue;
    socket.set_option(Tcp::no_delay(true));
    Session& session = sessions_.emplace_back(std::move(socket), tls_->context);
    session.number = ++connections_;
    session.thread = std::thread([this, &session] { Serve(session); });
  }
}

void ApiFixture::Serve(Session& session) {
  beast::error_code error;
  std::array<char, 4096> unread;
  while (session.number == ignored_ && !error)
    session.stream.next_layer().read_some(asio::buffer(unread), error);
  if (!error) session.stream.handshake(asio::ssl::stream_base::server, error);
  beast::flat_buffer buffer;
  for (int number = 1; !error; ++number) {
    http::request<http::string_body> message;
    http::read(session.stream, buffer, message, error);
    if (error) break;
    TlsExchange exchange(session.stream, message);
    exchange.connection = session.number;
    exchange.request = number;
    handler_(exchange);
    if (exchange.cut()) break;
  }
  ::shutdown(session.stream.next_layer().native_handle(), SHUT_RDWR);
}

void ApiFixture::CutAll() {
  absl::MutexLock lock(&mu_);
  for (Session& session : sessions_) ::shutdown(session.stream.next_layer().native_handle(), SHUT_RDWR);
}

void ApiFixture::WriteToken(const std::string& token) const {
  const std::string file = token_file() + ".new";
  std::ofstream(file) << token << "\n";
  std::filesystem::rename(file, token_file());
}

KubeConfig ApiFixture::Config() const {
  KubeConfig config;
  config.server = absl::StrCat("https://127.0.0.1:", tls_->acceptor.local_endpoint().port());
  config.ca_file = directory_ / "server.crt";
  config.token_file = token_file();
  return config;
}

std::unique_ptr<KubeClient> ApiFixture::Client() const { return MakeKubeClient(Config()).value(); }

Limits Soon(absl::Duration time) { return {absl::Now() + time}; }

Json Object(const std::string& space, const std::string& name, int version) {
  return {{"metadata",
           {{"namespace", space},
            {"name", name},
            {"uid", name + "-uid"},
            {"resourceVersion", std::to_string(version)}}}};
}

Json ListOf(const std::vector<Json>& items, int version, const std::string& next) {
  return {{"kind", "List"},
          {"metadata", {{"resourceVersion", std::to_string(version)}, {"continue", next}}},
          {"items", items}};
}

}  // namespace lunkeeper::kube
