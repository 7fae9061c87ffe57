#include "fencing/kube/https.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

// Beast's operations are asynchronous. RunOperation starts one and runs the connection's io_context on the
// caller's thread until it completes, so each call blocks but still ends at a deadline or a stop request,
// which a blocking socket could not do.
//
// An operation that ran out of time has closed the socket, since a TLS stream cannot be resumed in the middle
// of a record. So a connection that failed is never reusable.
namespace lunkeeper::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using beast::error_code;

// Used for a Retry-After that is a date and not a number of seconds (RFC 9110, 10.2.3).
constexpr absl::Duration kWhenSaid = absl::Seconds(1);
constexpr size_t kReadBytes = 64 << 10;
// Of any call, so that "for ever" is a time that the clock has.
constexpr absl::Duration kLongest = absl::Hours(24);

// We rejected the server's certificate, or the server rejected ours and said so in a TLS alert. OpenSSL
// reports alerts as reasons from SSL_AD_REASON_OFFSET on.
bool IsTrustFailure(int reason) {
  return reason == SSL_R_CERTIFICATE_VERIFY_FAILED || reason >= SSL_AD_REASON_OFFSET;
}

// Beast's timeout and our own stop look alike to asio; only the error code tells them apart.
absl::Status ConnectionError(const std::string& what, error_code error) {
  if (error == beast::error::timeout)
    return absl::DeadlineExceededError(
        absl::StrCat(what, ": the API server gave no answer in the time allowed"));
  if (error == asio::error::operation_aborted)
    return absl::CancelledError(
        absl::StrCat(what, ": given up, because this program is ending or needs it no more"));
  if (error.category() == asio::error::get_ssl_category() && IsTrustFailure(ERR_GET_REASON(error.value()))) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, ": no trusted connection: ", error.message(),
                     "; check the CA file, the server's name and our certificate"));
  }
  return absl::UnavailableError(absl::StrCat(what, ": the connection failed: ", error.message()));
}

// A context of its own for each connection, so that renewed certificates are loaded. `loaded` reports the
// error that the last call left; the verification callback is set first, as a context without it would accept
// any name that the CA signed.
absl::StatusOr<asio::ssl::context> MakeTls(const KubeConfig& config, const std::string& host) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  tls.set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  const auto loaded = [&error](const std::string& file) -> absl::Status {
    if (!error) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("connect to the API server: load ", file, ": ", error.message()));
  };
  tls.set_verify_callback(asio::ssl::host_name_verification(host), error);
  tls.load_verify_file(config.ca_file, error);
  RETURN_IF_ERROR(loaded(config.ca_file));
  if (config.certificate_file.empty()) return tls;
  tls.use_certificate_chain_file(config.certificate_file, error);
  RETURN_IF_ERROR(loaded(config.certificate_file));
  tls.use_private_key_file(config.key_file, asio::ssl::context::pem, error);
  RETURN_IF_ERROR(loaded(config.key_file));
  return tls;
}

// Makes the kernel notice a dead peer: two idle seconds, then three probes a second apart (tcp(7)). Watches
// depend on it, as their server may have nothing to send for a long time. TCP_USER_TIMEOUT is the same limit
// for data that the peer does not acknowledge.
void SetKeepAlive(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

class BeastConnection final : public HttpsConnection {
 public:
  BeastConnection(asio::ssl::context tls, std::string server)
      : server_(std::move(server)), tls_(std::move(tls)), stream_(io_, tls_) {}

  absl::Status ConnectTo(const ServerAddress& address, const Limits& limits) {
    const std::string what = absl::StrCat("connect to the API server at ", server_);
    error_code error;
    const auto found = Tcp::resolver(io_).resolve(address.host, address.port, error);
    if (error) return ConnectionError(what, error);
    asio::ip::make_address(address.host, error);
    // Server Name Indication takes names only, no addresses (RFC 6066, 3).
    if (error) SSL_set_tlsext_host_name(stream_.native_handle(), address.host.c_str());
    error = RunOperation(limits, [&](auto done) { TcpStream().async_connect(found, std::move(done)); });
    if (error) return ConnectionError(what, error);
    SetKeepAlive(TcpStream().socket().native_handle());
    error = RunOperation(
        limits, [&](auto done) { stream_.async_handshake(asio::ssl::stream_base::client, std::move(done)); });
    return error ? ConnectionError(what, error) : absl::OkStatus();
  }

  absl::StatusOr<HttpHead> SendRequest(const HttpRequest& request, const std::string& token,
                                       const Limits& limits) override {
    what_ = request.what;
    const auto message = BuildMessage(request, token);
    if (const error_code error =
            RunOperation(limits, [&](auto done) { http::async_write(stream_, message, std::move(done)); }))
      return ConnectionError(what_, error);
    parser_.emplace();
    // No limit here: the readers of ReadBytes limit what they keep, and a watch has no end.
    parser_->body_limit(boost::none);
    if (const error_code error = RunOperation(
            limits, [&](auto done) { http::async_read_header(stream_, buffer_, *parser_, std::move(done)); }))
      return ConnectionError(what_, error);
    HttpHead head{static_cast<int>(parser_->get().result_int()), std::nullopt};
    const auto after = parser_->get().find(http::field::retry_after);
    if (after != parser_->get().end()) {
      int64_t seconds = 0;
      const bool number = absl::SimpleAtoi(std::string(after->value()), &seconds) && seconds >= 0;
      head.retry_after = number ? absl::Seconds(seconds) : kWhenSaid;
    }
    return head;
  }

  absl::StatusOr<std::string_view> ReadBytes(const Limits& limits) override {
    std::string& body = parser_->get().body();
    body.clear();
    while (body.empty() && !parser_->is_done()) {
      if (const error_code error = RunOperation(
              limits, [&](auto done) { http::async_read_some(stream_, buffer_, *parser_, std::move(done)); }))
        return ConnectionError(what_, error);
    }
    return std::string_view(body);
  }

  bool IsReusable() override {
    if (!parser_ || !parser_->is_done() || !parser_->keep_alive() || buffer_.size() > 0) return false;
    // An idle connection has nothing to read but a close notification or the end of the stream.
    char byte = 0;
    return ::recv(TcpStream().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
  }

 private:
  beast::tcp_stream& TcpStream() { return beast::get_lowest_layer(stream_); }

  // Without a body there is no Content-Length either, which some proxies reject on GET.
  http::request<http::string_body> BuildMessage(const HttpRequest& request, const std::string& token) const {
    http::request<http::string_body> message;
    message.method_string(request.method);
    message.target(request.target);
    message.set(http::field::host, server_);
    message.set(http::field::user_agent, "lunkeeper/" LUNKEEPER_VERSION);
    message.set(http::field::accept, "application/json");
    if (!token.empty()) message.set(http::field::authorization, "Bearer " + token);
    if (!request.content_type.empty()) message.set(http::field::content_type, request.content_type);
    message.body() = request.body;
    if (!request.content_type.empty()) message.prepare_payload();
    return message;
  }

  // Starts an operation and runs it on this thread until it is over.
  // `start` receives the completion handler. A stop request closes the socket from the io_context's own
  // thread, which ends the operation with operation_aborted.
  template <class Start>
  error_code RunOperation(const Limits& limits, Start start) {
    error_code result = asio::error::operation_aborted;
    if (limits.stop.stop_requested()) return result;
    TcpStream().expires_after(absl::ToChronoNanoseconds(limits.TimeLeft()));
    start([&result](error_code error, auto&&...) { result = error; });
    const std::stop_callback stop(limits.stop, [this] { asio::post(io_, [this] { TcpStream().close(); }); });
    io_.restart();
    io_.run();
    return result;
  }

  const std::string server_;
  asio::io_context io_{1};
  asio::ssl::context tls_;
  beast::ssl_stream<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_{kReadBytes};
  std::optional<http::response_parser<http::string_body>> parser_;
  std::string what_;
};

}  // namespace

Limits::Limits(absl::Time time, std::stop_token stop_token)
    : until(time),
      deadline(std::chrono::steady_clock::now() +
               absl::ToChronoNanoseconds(std::clamp(time - absl::Now(), absl::ZeroDuration(), kLongest))),
      stop(std::move(stop_token)) {}

absl::Duration Limits::TimeLeft() const {
  return std::max(absl::FromChrono(deadline - std::chrono::steady_clock::now()), absl::ZeroDuration());
}

absl::StatusOr<std::unique_ptr<HttpsConnection>> ConnectHttps(const KubeConfig& config,
                                                              const Limits& limits) {
  ASSIGN_OR_RETURN(const ServerAddress address, ParseServer(config.server));
  ASSIGN_OR_RETURN(asio::ssl::context tls, MakeTls(config, address.host));
  auto connection =
      std::make_unique<BeastConnection>(std::move(tls), config.server.substr(config.server.find("//") + 2));
  RETURN_IF_ERROR(connection->ConnectTo(address, limits));
  return connection;
}

}  // namespace lunkeeper::kube
