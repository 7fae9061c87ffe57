#include "base/testing/test_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>

#include "absl/time/clock.h"
#include "base/unique_fd.h"

namespace lunkeeper::testing {

TempDir::TempDir(const std::string& parent) : path_(parent + "/lunkeeper-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no new directory in " + parent);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

uint16_t FreePort() {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto port = std::uniform_int_distribution<uint16_t>(15000, 32000)(random);
    address.sin_port = htons(port);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
  throw std::runtime_error("no free port");
}

bool Eventually(const std::function<bool()>& condition, absl::Duration within) {
  const absl::Time deadline = absl::Now() + within;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace lunkeeper::testing
