#include "plugin/doctor_surroundings.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

using boost::asio::ip::tcp;

constexpr int kPoll = 20, kPolls = 100;  // milliseconds; 2 s in all

absl::Status Connect(const std::string& address, tcp::iostream& stream) {
  const auto parts = ParseHostPort(address);
  boost::system::error_code wrong;
  const auto number = boost::asio::ip::make_address(parts ? parts->host : "", wrong);
  if (wrong) return absl::InvalidArgumentError("it is not a numeric address");
  stream.expires_after(std::chrono::seconds(2));
  stream.connect(tcp::endpoint(number, parts->port));
  return stream ? absl::OkStatus() : absl::UnavailableError(stream.error().message());
}

absl::Status TryToConnect(const std::string& address) {
  tcp::iostream stream;
  return Connect(address, stream);
}

// The longest login that iSCSI has, without its last byte, in one piece: more than two small packets, and
// nearly a jumbo one. The target waits for the rest, and forgets it when the connection ends.
std::string LoginThatNeverEnds() {
  std::string request(48 + 8192 - 1, '\0');
  request[0] = 0x43;  // a login
  request[6] = 0x20;  // with 8192 bytes of text
  return request;
}

// The kernel there acknowledges what arrives, or ends the connection, where nobody serves it. Where neither
// comes back, full packets are lost on the way. That it has no more to say (a FIN) tells nothing.
absl::Status SendMuch(const std::string& address) {
  tcp::iostream stream;
  RETURN_IF_ERROR(Connect(address, stream));
  const std::string request = LoginThatNeverEnds();
  pollfd there = {.fd = stream.socket().native_handle(), .events = 0, .revents = 0};
  if (::send(there.fd, request.data(), request.size(), MSG_NOSIGNAL) < 0)
    return absl::ErrnoToStatus(errno, "sending");
  for (int tries = 0; ::poll(&there, 1, kPoll) == 0; ++tries) {
    int unsent = 0;
    if (::ioctl(there.fd, SIOCOUTQ, &unsent) != 0 || unsent == 0) return absl::OkStatus();
    if (tries == kPolls) return absl::UnavailableError("8 KiB were not acknowledged within 2 s");
  }
  return absl::OkStatus();
}

absl::Status Resolve(const std::string& host) {
  boost::asio::io_context context;
  boost::system::error_code wrong;
  tcp::resolver(context).resolve(host, "", wrong);
  return wrong ? absl::UnavailableError(wrong.message()) : absl::OkStatus();
}

absl::Status OpenDevice(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return file ? absl::OkStatus() : absl::ErrnoToStatus(errno, "cannot be opened");
}

std::string ReadSetting(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return text;
}

}  // namespace

Surroundings RealSurroundings() {
  return {.now = absl::Now(),
          .own_namespace = kube::InClusterNamespace().value_or(""),
          .connect = TryToConnect,
          .send_much = SendMuch,
          .resolve = Resolve,
          .open_device = OpenDevice,
          .read_setting = ReadSetting};
}

}  // namespace lunkeeper
