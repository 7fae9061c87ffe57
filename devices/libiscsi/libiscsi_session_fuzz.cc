// What a target answers, whatever it is, breaks neither the library libiscsi nor what reads its answers.
//
// The bytes are a row of answers, each sent when the session has sent something: a length, the header, and so
// many bytes of data. The header is made fit where a mutation would only ever be refused (RFC 7143, 11.2):
// the length of the data, and the tag of the command that it answers.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "devices/libiscsi/libiscsi_session.h"
#include "devices/libiscsi/persistent_reservation.h"

namespace {

using namespace lunkeeper;

constexpr size_t kHeader = 48;
constexpr size_t kLengthAt = 5, kTagAt = 16;
constexpr int kQuiet = 20;  // ms, after which the session waits for more

class AnsweringTarget {
 public:
  AnsweringTarget() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), any, size) != 0 || ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), any, &size) != 0)
      std::abort();
    portal_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const std::string& portal() const { return portal_; }

  // One connection, until the answers are used up or the session has gone.
  void Serve(std::span<const uint8_t> answers) {
    const UniqueFd session(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Reset, not closed: else each session keeps its port for a minute.
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(session.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    while (answers.size() > kHeader) {
      std::array<uint8_t, kHeader> request = {};
      if (!ReadRequest(session.get(), request)) return;
      const size_t length = std::min<size_t>(answers[0], answers.size() - 1 - kHeader);
      std::vector<uint8_t> answer(answers.begin() + 1, answers.begin() + 1 + kHeader + length);
      answers = answers.subspan(answer.size() + 1);
      answer[kLengthAt] = answer[kLengthAt + 1] = 0;
      answer[kLengthAt + 2] = static_cast<uint8_t>(length);
      std::copy_n(request.begin() + kTagAt, 4, answer.begin() + kTagAt);
      answer.resize((answer.size() + 3) / 4 * 4);
      if (::send(session.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

 private:
  // The first header of what has come; false: it has gone. One that waits for more gets the next answer.
  static bool ReadRequest(int session, std::array<uint8_t, kHeader>& header) {
    pollfd ready{session, POLLIN, 0};
    if (::poll(&ready, 1, kQuiet) == 0) return true;
    std::array<uint8_t, 1 << 16> bytes;
    const ssize_t got = ::read(session, bytes.data(), bytes.size());
    if (got > 0)
      std::copy_n(bytes.begin(), std::min<size_t>(kHeader, static_cast<size_t>(got)), header.begin());
    return got > 0;
  }

  const UniqueFd listener_;
  std::string portal_;
};

void UseSession(const std::string& portal) {
  Connection connection;
  connection.portal = portal;
  connection.target = Iqn("iqn.2026-11.io.lunkeeper:target");
  connection.initiator = Iqn("iqn.2026-11.io.lunkeeper:node");
  const auto session = LibiscsiSession::Login(connection, {.timeout = absl::Seconds(2), .isid = 1});
  if (!session.ok()) return;
  (void)(*session)->ReadIdentity();
  std::vector<char> block(512);
  (void)(*session)->ReadBlocks(0, block);
  (void)(*session)->WriteBlocks(0, block);
  PersistentReservation reservation(**session);
  (void)reservation.ReadKeys();
  (void)reservation.ReadReservation();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static AnsweringTarget target;
  std::thread serving([=] { target.Serve({data, size}); });
  UseSession(target.portal());
  serving.join();
  return 0;
}
