// What a target sends, whatever it is, neither breaks the session's memory nor makes it spin.
// The first byte chooses how far the session is before the rest arrives, the second how it is cut.

#include <algorithm>
#include <cstring>

#include "devices/iscsi/crc32c.h"
#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/scsi.h"

namespace lunkeeper::iscsi {
namespace {

class Owner final : public SessionHandler {
 public:
  void OnLoggedIn() override { StartTasks(); }
  void OnTaskDone(Task& task) override {
    (void)EvaluateCommand(task, task.direction == Direction::kOut ? LunOp::kWrite : LunOp::kRead);
    LunFacts facts;
    for (int i = 0; i < static_cast<int>(Question::kEnd); ++i) {
      if (task.direction == Direction::kIn) (void)TakeAnswer(static_cast<Question>(i), task, facts);
    }
  }
  void OnReset(uint8_t) override {}
  void OnLoggedOut() override {}
  void OnLogoutWanted(std::chrono::seconds) override { session->SendLogout(); }
  void OnLostWrite() override {}

  void StartTasks() {
    for (size_t i = 0; i < 4; ++i) {
      Task* task = session->NewTask();
      if (task == nullptr) return;
      task->direction = i % 2 == 0 ? Direction::kIn : Direction::kOut;
      task->data = memory[i].data();
      task->length = static_cast<uint32_t>(memory[i].size());
      session->StartTask(task);
    }
    session->ResetLun();
    session->SendPing();
  }

  InitiatorSession* session = nullptr;
  std::array<std::vector<char>, 4> memory{std::vector<char>(255), std::vector<char>(3000),
                                          std::vector<char>(100000), std::vector<char>(70000)};
};

void Drain(InitiatorSession& session) {
  const iovec* pieces;
  for (int i = 0; i < 100; ++i) {
    const int count = session.OutputPieces(&pieces);
    if (count == 0) return;
    size_t size = 0;
    for (int at = 0; at < count; ++at) size += pieces[at].iov_len;
    session.MarkSent(std::min<size_t>(size, 5000));
  }
}

void Feed(InitiatorSession& session, const uint8_t* bytes, size_t size, size_t step) {
  while (size > 0 && !session.broken()) {
    iovec space[2];
    const int count = session.InputSpace(space);
    size_t got = 0;
    for (int i = 0; i < count; ++i) {
      const size_t part = std::min({space[i].iov_len, size - got, step - got});
      std::memcpy(space[i].iov_base, bytes + got, part);
      got += part;
    }
    session.TakeInput(got);
    bytes += got;
    size -= got;
    Drain(session);
  }
}

// `data` with a right digest wherever one is due, so that what is fuzzed is not what the digests keep out.
std::vector<uint8_t> WithDigests(const uint8_t* data, size_t size) {
  std::vector<uint8_t> out;
  const auto add = [&](size_t length) {
    length = std::min(length, size);
    const uint32_t crc = Crc32c(data, static_cast<uint32_t>(length));
    out.insert(out.end(), data, data + length);
    for (int shift = 0; length > 0 && shift < 32; shift += 8)
      out.push_back(static_cast<uint8_t>(crc >> shift));
    data += length;
    size -= length;
  };
  while (size >= kHeaderSize) {
    const uint32_t length = Get24(data + kDataLengthAt);
    add(kHeaderSize);
    add(length + Padding(length));
  }
  return out;
}

// The answers that take a login without CHAP to its end.
void LogIn(InitiatorSession& session, bool digests) {
  Header header{};
  header[0] = kLoginResponse;
  header[1] = 0x81;
  Put32(&header[kMaxCmdSnAt], 100);
  Feed(session, header.data(), header.size(), 1000);
  header[1] = 0x87;
  Put32(&header[kStatSnAt], 1);
  std::vector<uint8_t> last(header.begin(), header.end());
  constexpr std::string_view kAgreed("HeaderDigest=CRC32C\0DataDigest=CRC32C\0", 39);
  if (digests) {
    Put24(&last[kDataLengthAt], kAgreed.size());
    last.insert(last.end(), kAgreed.begin(), kAgreed.end());
    last.resize(last.size() + Padding(kAgreed.size()));
  }
  Feed(session, last.data(), last.size(), 1000);
}

}  // namespace
}  // namespace lunkeeper::iscsi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper::iscsi;
  if (size < 2) return 0;
  lunkeeper::Connection connection;
  connection.initiator = lunkeeper::Iqn("iqn.initiator");
  connection.target = lunkeeper::Iqn("iqn.target");
  if (data[0] % 3 == 1) connection.chap = {"user", "secret"};
  const bool digests = data[0] >= 128;
  if (digests) connection.digests = lunkeeper::Digests::kAll;
  Owner owner;
  InitiatorSession session(connection, 8, &owner);
  owner.session = &session;
  session.BeginLogin();
  Drain(session);
  if (data[0] % 3 == 2) LogIn(session, digests);
  const std::vector<uint8_t> rest =
      digests ? WithDigests(data + 2, size - 2) : std::vector<uint8_t>(data + 2, data + size);
  Feed(session, rest.data(), rest.size(), data[1] + 1u);
  return 0;
}
