// Boost.Beast on one io_context with three threads. A HttpConnection owns itself: each pending operation
// holds a shared_ptr to it, and it is destroyed when the last operation ends without starting another.
//
//   AcceptNext → HttpConnection: ReadRequest → AnswerRequest → WriteReply → ReadRequest …
//
// Every operation has a deadline of five seconds, so a client that stops sending or reading costs a
// connection for that long and no thread. A page's function runs in one of the three threads, which is why a
// slow page delays no other as long as at most two are slow.
//
// kubelet kills a container whose probes fail, so a new connection is always accepted: HttpConnections says
// which older one has to go for it.
#include "base/http.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;

constexpr auto kTimeout = std::chrono::seconds(5);
// Descriptors come back when connections end; trying five times a second finds that soon enough.
constexpr auto kAcceptPause = std::chrono::milliseconds(200);
constexpr size_t kMaxRequestBytes = 4096;
// Prometheus, kubelet's probes and a person or two; more are a mistake or an attack.
constexpr size_t kMostConnections = 64;
constexpr int kThreads = 3;

absl::StatusOr<Tcp::endpoint> ParseAddress(const std::string& address) {
  const absl::Status wrong =
      absl::InvalidArgumentError(absl::StrCat("metrics address \"", address, "\": want a numeric host:port"));
  const auto where = ParseHostPort(address);
  if (!where) return wrong;
  boost::system::error_code error;
  const auto ip = asio::ip::make_address(where->host.empty() ? "0.0.0.0" : where->host, error);
  if (error) return wrong;
  return Tcp::endpoint(ip, where->port);
}

class HttpConnection;

// The connections that may go on, in the order in which they came. Thread-safe.
class HttpConnections {
 public:
  using Pointer = std::shared_ptr<HttpConnection>;
  // Returns the connection that has to be closed for this one, or null.
  Pointer Add(const Pointer& connection, const asio::ip::address& from) {
    const absl::MutexLock lock(&mutex_);
    entries_.push_back({connection.get(), connection, from});
    if (entries_.size() <= kMostConnections) return nullptr;
    // The oldest one of the address that has the most: who floods the port loses connections of its own.
    std::map<asio::ip::address, int> counts;
    for (const Entry& entry : entries_) ++counts[entry.from];
    auto oldest = entries_.begin();
    for (auto each = entries_.begin(); each != entries_.end(); ++each)
      if (counts[each->from] > counts[oldest->from]) oldest = each;
    Pointer removed = oldest->connection.lock();
    entries_.erase(oldest);
    return removed;
  }
  void Remove(const HttpConnection* connection) {
    const absl::MutexLock lock(&mutex_);
    entries_.remove_if([&](const Entry& entry) { return entry.key == connection; });
  }

 private:
  struct Entry {
    const HttpConnection* key;
    std::weak_ptr<HttpConnection> connection;
    asio::ip::address from;
  };
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// One connection: a request, its reply, and again until the peer closes or is too slow. Its handlers run one
// at a time, in the socket's strand.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Tcp::socket socket, const HttpPages& pages, HttpConnections& all)
      : stream_(std::move(socket)), pages_(pages), all_(all) {}
  ~HttpConnection() { all_.Remove(this); }

  void Start() {
    asio::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->ReadRequest(); });
  }
  // Its pending operation fails, which ends it.
  void Close() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->stream_.close(); });
  }

 private:
  void ReadRequest() {
    // A parser serves one request; the limits are set before a byte is read.
    parser_.emplace();
    parser_->header_limit(kMaxRequestBytes);
    parser_->body_limit(kMaxRequestBytes);
    stream_.expires_after(kTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (!error) self->AnswerRequest();
                     });
  }

  void AnswerRequest() {
    const auto& request = parser_->get();
    HttpReply reply{404, "no such page\n"};
    const std::string target(request.target().data(), request.target().size());
    const auto page = pages_.find(target.substr(0, target.find('?')));
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      reply = {405, "GET and HEAD only\n"};
    } else if (page != pages_.end()) {
      reply = page->second();
    }
    response_ = {};
    response_.version(request.version());
    response_.result(static_cast<unsigned>(reply.status));
    response_.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    response_.content_length(reply.body.size());
    response_.keep_alive(request.keep_alive());
    // The reply to HEAD has the length of a body, and no body (RFC 9110, section 9.3.2).
    if (request.method() != http::verb::head) response_.body() = std::move(reply.body);
    WriteReply();
  }

  void WriteReply() {
    stream_.expires_after(kTimeout);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error && self->response_.keep_alive()) self->ReadRequest();
    });
  }

  beast::tcp_stream stream_;
  const HttpPages& pages_;
  HttpConnections& all_;
  beast::flat_buffer buffer_{2 * kMaxRequestBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

class BeastServer final : public HttpServer {
 public:
  explicit BeastServer(HttpPages pages) : pages_(std::move(pages)), acceptor_(context_) {}

  ~BeastServer() override {
    // Pending operations are dropped with the context, and their connections with them.
    context_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Start(const std::string& address) {
    ASSIGN_OR_RETURN(const Tcp::endpoint endpoint, ParseAddress(address));
    const bool all = endpoint.address().is_unspecified();
    boost::system::error_code error =
        ListenOn(all ? Tcp::endpoint(asio::ip::address_v6::any(), endpoint.port()) : endpoint);
    // A kernel without IPv6.
    if (all && error && error != boost::system::errc::address_in_use)
      error = ListenOn({asio::ip::address_v4::any(), endpoint.port()});
    if (error) return absl::UnavailableError(absl::StrCat("listen on ", address, ": ", error.message()));
    port_ = acceptor_.local_endpoint().port();
    AcceptNext();
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { context_.run(); });
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

 private:
  // "All addresses" are those of both families: a cluster's pods may have IPv6 alone.
  boost::system::error_code ListenOn(const Tcp::endpoint& endpoint) {
    boost::system::error_code error, ignored;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    if (!error && endpoint.address().is_v6()) acceptor_.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    return error;
  }

  void AcceptNext() {
    acceptor_.async_accept(asio::make_strand(context_), [this](beast::error_code error, Tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      // Most likely out of descriptors. Accepting again at once would fail at once, and spin.
      if (error) return AcceptLater(error);
      StartConnection(std::move(socket));
      AcceptNext();
    });
  }

  void StartConnection(Tcp::socket socket) {
    beast::error_code error;
    const Tcp::endpoint from = socket.remote_endpoint(error);
    if (error) return;  // it is gone already
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), pages_, connections_);
    if (const auto in_the_way = connections_.Add(connection, from.address())) in_the_way->Close();
    connection->Start();
  }

  void AcceptLater(beast::error_code reason) {
    LogWarn("http", "accepting a connection failed", {{"error", reason.message()}});
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](beast::error_code error) {
      if (!error) AcceptNext();
    });
  }

  const HttpPages pages_;
  HttpConnections connections_;
  // Destroyed before pages_ and connections_, to which the handlers still in it refer.
  asio::io_context context_{kThreads};
  Tcp::acceptor acceptor_;
  asio::steady_timer pause_{context_};
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const std::string& address, HttpPages pages) {
  auto server = std::make_unique<BeastServer>(std::move(pages));
  RETURN_IF_ERROR(server->Start(address));
  return server;
}

}  // namespace lunkeeper
