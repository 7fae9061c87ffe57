#pragma once
// An initiator session on canned bytes, for tests: what it sends is read, and what it receives is made here.
// Made and used by one test at a time.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "devices/iscsi/crc32c.h"
#include "devices/iscsi/initiator_session.h"

namespace lunkeeper::iscsi {

using Bytes = std::vector<uint8_t>;

class Recorder final : public SessionHandler {
 public:
  void OnLoggedIn() override { events.push_back("logged in"); }
  void OnTaskDone(Task& task) override {
    events.push_back("done " + std::to_string(task.status));
    last = task;
  }
  void OnReset(uint8_t response) override { events.push_back("reset " + std::to_string(response)); }
  void OnLoggedOut() override { events.push_back("logged out"); }
  void OnLogoutWanted(std::chrono::seconds within) override {
    events.push_back("logout within " + std::to_string(within.count()));
  }
  void OnLostWrite() override { events.push_back("lost write"); }

  std::vector<std::string> events;
  Task last;
};

struct SessionRig {
  explicit SessionRig(ChapCredentials chap = {}) {
    connection.initiator = Iqn("iqn.a");
    connection.target = Iqn("iqn.b");
    connection.chap = std::move(chap);
    session.BeginLogin();
  }

  // What is to be sent, all of it, as sent.
  Bytes Sent() {
    Bytes out;
    const iovec* pieces;
    while (const int count = session.OutputPieces(&pieces)) {
      size_t size = 0;
      for (int i = 0; i < count; ++i) {
        const auto* begin = static_cast<const uint8_t*>(pieces[i].iov_base);
        out.insert(out.end(), begin, begin + pieces[i].iov_len);
        size += pieces[i].iov_len;
      }
      session.MarkSent(size);
    }
    return out;
  }
  std::string SentText() {
    const Bytes out = Sent();
    std::string text(out.begin() + kHeaderSize, out.end());
    std::replace(text.begin(), text.end(), '\0', ' ');
    return text;
  }
  // Receives `bytes`, `step` at a time.
  void Receive(const Bytes& bytes, size_t step = SIZE_MAX) {
    size_t at = 0;
    while (at < bytes.size() && !session.broken()) {
      iovec space[2];
      const int count = session.InputSpace(space);
      size_t got = 0;
      for (int i = 0; i < count; ++i) {
        const size_t part = std::min({space[i].iov_len, bytes.size() - at, step - got});
        std::memcpy(space[i].iov_base, bytes.data() + at, part);
        at += part;
        got += part;
      }
      session.TakeInput(got);
    }
  }
  Bytes Pdu(uint8_t opcode, uint8_t flags, uint32_t tag, bool status, const std::string& data = "") {
    Bytes pdu(kHeaderSize + data.size() + Padding(static_cast<uint32_t>(data.size())));
    pdu[0] = opcode;
    pdu[1] = flags;
    Put24(&pdu[kDataLengthAt], static_cast<uint32_t>(data.size()));
    Put32(&pdu[kTagAt], tag);
    Put32(&pdu[kTargetTagAt], kNoTag);
    Put32(&pdu[kStatSnAt], status ? stat_sn++ : stat_sn);
    Put32(&pdu[kExpCmdSnAt], 1);
    Put32(&pdu[kMaxCmdSnAt], max_cmd_sn);
    std::copy(data.begin(), data.end(), pdu.begin() + kHeaderSize);
    return pdu;
  }
  void LogIn(const std::string& parameters = "") {
    Sent();
    Receive(Pdu(kLoginResponse, 0x81, 0, true, std::string("AuthMethod=None\0", 16)));
    Sent();
    Receive(Pdu(kLoginResponse, 0x87, 0, true, parameters));
    REQUIRE(recorder.events == std::vector<std::string>{"logged in"});
    recorder.events.clear();
  }
  // Starts a command; its tag.
  uint32_t Start(Direction direction, std::vector<char>& memory) {
    Task* task = session.NewTask();
    REQUIRE(task != nullptr);
    task->direction = direction;
    task->data = memory.data();
    task->length = static_cast<uint32_t>(memory.size());
    session.StartTask(task);
    return task->internal.tag;
  }

  // `pdu` as a target sends it that has agreed to `digests`.
  static Bytes WithDigests(const Bytes& pdu, Digests digests) {
    const auto add = [](Bytes& bytes, size_t from) {
      const uint32_t crc = Crc32c(bytes.data() + from, static_cast<uint32_t>(bytes.size() - from));
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<uint8_t>(crc >> shift));
    };
    Bytes out(pdu.begin(), pdu.begin() + kHeaderSize);
    if (digests >= Digests::kHeader) add(out, 0);
    const size_t data_at = out.size();
    out.insert(out.end(), pdu.begin() + kHeaderSize, pdu.end());
    if (digests >= Digests::kAll && out.size() > data_at) add(out, data_at);
    return out;
  }

  Connection connection;
  Recorder recorder;
  InitiatorSession session{connection, 4, &recorder};
  uint32_t stat_sn = 100, max_cmd_sn = 64;
};

inline std::string Key(const std::string& pair) { return pair + '\0'; }

}  // namespace lunkeeper::iscsi
