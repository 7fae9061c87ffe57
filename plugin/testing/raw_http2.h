#pragma once
// A client that speaks HTTP/2 over TLS as badly as a test wants: it sends whatever frames the test gives it,
// and checks no certificate. For one thread. A failure to connect fails the test; one to send is the server's
// answer.

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/tcp_client.h"

namespace lunkeeper {

class RawHttp2 {
 public:
  enum Type : char { kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kContinuation = 9 };
  static constexpr char kEndHeaders = 4, kEndStream = 1;

  explicit RawHttp2(int port, const char* from = "127.0.0.1") : fd_(ConnectTo(port, from)) {
    // So that what is sent is what the server takes, and not what the kernel keeps for it.
    const int bytes = 16 << 10;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    constexpr unsigned char kProtocol[] = "\x02h2";
    SSL_CTX_set_alpn_protos(context_.get(), kProtocol, 3);
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), fd_.get());
    // A server that refuses the connection ends it here; then nothing can be sent.
    connected_ = SSL_connect(tls_.get()) == 1;
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    SendFrame(kSettings, 0, 0, "");
  }

  // False: the server has ended the connection.
  bool Send(const std::string& bytes) {
    if (!connected_) return false;
    size_t sent = 0;
    connected_ = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &sent) == 1;
    if (connected_) sent_ += sent;
    return connected_;
  }
  static std::string Frame(Type type, char flags, uint32_t stream, const std::string& payload) {
    std::string frame;
    for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
    frame += {type, flags};
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
    return frame + payload;
  }
  bool SendFrame(Type type, char flags, uint32_t stream, const std::string& payload) {
    return Send(Frame(type, flags, stream, payload));
  }
  size_t sent() const { return sent_; }
  // Whether the server has closed the connection. What it sent before is thrown away; does not wait.
  bool IsEnded() const {
    char bytes[4096];
    ssize_t n = 1;
    while (n > 0) n = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return n == 0 || errno != EAGAIN;
  }

  // A header field as HPACK's literal that is not indexed (RFC 7541, 6.2.2).
  static std::string Field(const std::string& name, const std::string& value) {
    return absl::StrCat(std::string(1, '\0'), Length(name.size()), name, Length(value.size()), value);
  }
  // Of a call, up to what a test adds.
  static std::string CallHeaders(const std::string& method, const std::string& scheme = "https") {
    return Field(":method", "POST") + Field(":scheme", scheme) +
           Field(":path", "/lunkeeper.coordinator.v1.Coordinator/" + method) + Field("te", "trailers") +
           Field("content-type", "application/grpc");
  }
  // An integer with a prefix of seven bits (RFC 7541, 5.1).
  static std::string Length(size_t value) {
    if (value < 127) return std::string(1, static_cast<char>(value));
    std::string text(1, '\x7f');
    for (value -= 127; value >= 128; value >>= 7) text += static_cast<char>(value % 128 + 128);
    return text + static_cast<char>(value);
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  UniqueFd fd_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
  bool connected_ = false;
  size_t sent_ = 0;
};

}  // namespace lunkeeper
