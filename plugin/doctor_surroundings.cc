#include "plugin/doctor_surroundings.h"

#include <fcntl.h>

#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

using boost::asio::ip::tcp;

absl::Status Connect(const std::string& address) {
  const auto parts = ParseHostPort(address);
  boost::system::error_code wrong;
  const auto number = boost::asio::ip::make_address(parts ? parts->host : "", wrong);
  if (wrong) return absl::InvalidArgumentError("it is not a numeric address");
  tcp::iostream stream;
  stream.expires_after(std::chrono::seconds(2));
  stream.connect(tcp::endpoint(number, parts->port));
  return stream ? absl::OkStatus() : absl::UnavailableError(stream.error().message());
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
          .connect = Connect,
          .open_device = OpenDevice,
          .read_setting = ReadSetting};
}

}  // namespace lunkeeper
