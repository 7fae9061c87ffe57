// Digests on canned bytes: what is agreed at login, what goes out, and that nothing which came wrong is used.

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "devices/iscsi/testing/session_rig.h"

namespace lunkeeper::iscsi {
namespace {

std::string AgreementTo(Digests digests) {
  const bool data = digests == Digests::kAll;
  return Key("HeaderDigest=CRC32C") + Key(std::string("DataDigest=") + (data ? "CRC32C" : "None"));
}

struct DigestRig : SessionRig {
  explicit DigestRig(Digests wanted) : digests(wanted) { connection.digests = wanted; }
  void Begin() { LogIn(AgreementTo(digests)); }
  void ReceiveWithDigests(const Bytes& pdu, size_t step = SIZE_MAX) {
    Receive(WithDigests(pdu, digests), step);
  }
  Bytes DataIn(uint32_t tag, const std::string& data) {
    return Pdu(kDataIn, kFinal | kDataInStatus, tag, true, data);
  }

  const Digests digests;
};

// RFC 7143, appendix A.4 (of RFC 3720: B.4): the digests as they are on the wire.
TEST_CASE("the digests are those of the standard's examples, also piece by piece") {
  const auto on_wire = [](const Bytes& bytes, size_t cut = 0) {
    const uint32_t before = Crc32c(bytes.data(), static_cast<uint32_t>(cut));
    const uint32_t crc = Crc32c(bytes.data() + cut, static_cast<uint32_t>(bytes.size() - cut), before);
    return Bytes{static_cast<uint8_t>(crc), static_cast<uint8_t>(crc >> 8), static_cast<uint8_t>(crc >> 16),
                 static_cast<uint8_t>(crc >> 24)};
  };
  Bytes rising(32), falling(32);
  std::iota(rising.begin(), rising.end(), uint8_t{0});
  std::iota(falling.rbegin(), falling.rend(), uint8_t{0});
  CHECK(on_wire(Bytes(32)) == Bytes{0xaa, 0x36, 0x91, 0x8a});
  CHECK(on_wire(Bytes(32, 0xff)) == Bytes{0x43, 0xab, 0xa8, 0x62});
  CHECK(on_wire(rising) == Bytes{0x4e, 0x79, 0xdd, 0x46});
  CHECK(on_wire(falling) == Bytes{0x5c, 0xdb, 0x3f, 0x11});
  for (size_t cut = 0; cut <= rising.size(); ++cut) CHECK(on_wire(rising, cut) == on_wire(rising));
  const uint32_t crc = Crc32c(rising.data(), 32);
  const uint8_t wire[] = {0x4e, 0x79, 0xdd, 0x46}, other[] = {0x4e, 0x79, 0xdd, 0x47};
  CHECK(IsDigest(wire, crc));
  CHECK_FALSE(IsDigest(other, crc));
}

TEST_CASE("exactly the digests that are asked for are offered") {
  SessionRig rig;
  rig.connection.digests = GENERATE(Digests::kNone, Digests::kHeader, Digests::kAll);
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x81, 0, true, Key("AuthMethod=None")));
  const std::string offer = rig.SentText();
  const bool header = rig.connection.digests != Digests::kNone,
             data = rig.connection.digests == Digests::kAll;
  CHECK_THAT(offer, Catch::Contains(header ? "HeaderDigest=CRC32C " : "HeaderDigest=None ") &&
                        Catch::Contains(data ? "DataDigest=CRC32C " : "DataDigest=None "));
}

TEST_CASE("a target that does not agree to the digests is left, not used without") {
  SessionRig rig;
  const auto [wanted, answer, missing] = GENERATE(table<Digests, std::string, std::string>({
      {Digests::kHeader, "", "header digests"},
      {Digests::kHeader, Key("HeaderDigest=None"), "header digests"},
      {Digests::kHeader, Key("HeaderDigest=Reject"), "header digests"},
      {Digests::kHeader, Key("HeaderDigest=NotUnderstood"), "header digests"},
      {Digests::kAll, Key("HeaderDigest=CRC32C"), "data digests"},
      {Digests::kAll, Key("HeaderDigest=CRC32C") + Key("DataDigest=None"), "data digests"},
      {Digests::kAll, Key("DataDigest=CRC32C"), "header digests"},
      {Digests::kHeader, Key("HeaderDigest=CRC32C,None"), "HeaderDigest=CRC32C,None"},
      {Digests::kHeader, Key("HeaderDigest=CRC32C") + Key("DataDigest=CRC32C"), "DataDigest=CRC32C"},
      {Digests::kNone, Key("HeaderDigest=CRC32C"), "HeaderDigest=CRC32C"},
  }));
  rig.connection.digests = wanted;
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x81, 0, true, Key("AuthMethod=None")));
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x87, 0, true, answer));
  CHECK(rig.session.broken());
  CHECK_FALSE(rig.session.refused());
  CHECK_FALSE(rig.session.corrupted());
  CHECK(rig.recorder.events.empty());
  CHECK_THAT(rig.session.failure(), Catch::Contains(missing));
}

TEST_CASE("every header that is sent has its digest, and so have data where that is asked for") {
  DigestRig rig(GENERATE(Digests::kHeader, Digests::kAll));
  rig.Begin();
  std::vector<char> in(512), out(4099, 'w');
  rig.Start(Direction::kIn, in);
  rig.Start(Direction::kIn, in);
  rig.Start(Direction::kOut, out);
  rig.session.SendPing();
  const Bytes sent = rig.Sent();
  size_t at = 0, pdus = 0;
  for (; at < sent.size(); ++pdus) {
    const uint32_t length = Get24(&sent[at + kDataLengthAt]);
    CHECK(IsDigest(&sent[at + kHeaderSize], Crc32c(&sent[at], kHeaderSize)));
    at += kHeaderSize + kDigestSize;
    const uint32_t padded = length + Padding(length);
    if (length > 0 && rig.digests == Digests::kAll) {
      CHECK(IsDigest(&sent[at + padded], Crc32c(&sent[at], padded)));
      at += kDigestSize;
    }
    at += padded;
  }
  CHECK(at == sent.size());
  CHECK(pdus == 4);
}

TEST_CASE("what comes with digests is read as without them, however it is cut") {
  DigestRig rig(GENERATE(Digests::kHeader, Digests::kAll));
  const size_t step = GENERATE(1, 3, 52, 53, 4000, 1000000);
  const size_t size = GENERATE(512, 4099, 70001);
  rig.Begin();
  std::vector<char> small(size), other(64), none(4096, 'w');
  const uint32_t read = rig.Start(Direction::kIn, small);
  const uint32_t refused = rig.Start(Direction::kIn, other);
  const uint32_t write = rig.Start(Direction::kOut, none);
  rig.Sent();
  std::string text(size, ' ');
  std::iota(text.begin(), text.end(), 'a');
  Bytes all;
  const auto add = [&](const Bytes& pdu) {
    const Bytes whole = SessionRig::WithDigests(pdu, rig.digests);
    all.insert(all.end(), whole.begin(), whole.end());
  };
  add(rig.DataIn(read, text));
  Bytes sense =
      rig.Pdu(kScsiResponse, kFinal, refused, true, std::string("\0\x12\x70\0\5", 5) + std::string(15, '\0'));
  sense[3] = 2;
  add(sense);
  add(rig.Pdu(kScsiResponse, kFinal, write, true));
  rig.Receive(all, step);
  REQUIRE_FALSE(rig.session.broken());
  CHECK(rig.recorder.events == std::vector<std::string>{"done 0", "done 2", "done 0"});
  CHECK(std::string(small.begin(), small.end()) == text);
}

TEST_CASE("data that come in several PDUs are checked one by one") {
  DigestRig rig(Digests::kAll);
  rig.Begin();
  std::vector<char> memory(70000);
  const uint32_t tag = rig.Start(Direction::kIn, memory);
  rig.Sent();
  Bytes first = rig.Pdu(kDataIn, 0, tag, false, std::string(40000, 'a'));
  Bytes second = rig.DataIn(tag, std::string(30000, 'b'));
  Put32(&second[kDataSnAt], 1);
  Put32(&second[kBufferOffsetAt], 40000);
  rig.ReceiveWithDigests(first, 5000);
  REQUIRE_FALSE(rig.session.broken());
  SECTION("good") {
    rig.ReceiveWithDigests(second, 5000);
    CHECK(rig.recorder.events == std::vector<std::string>{"done 0"});
    CHECK(std::string(memory.begin(), memory.end()) == std::string(40000, 'a') + std::string(30000, 'b'));
  }
  SECTION("the second is wrong") {
    Bytes wrong = SessionRig::WithDigests(second, Digests::kAll);
    wrong[20000] ^= 4;
    rig.Receive(wrong, 5000);
    CHECK(rig.session.corrupted());
    CHECK(rig.recorder.events.empty());
  }
}

// Every byte of a read's answer, and of a response with sense data.
TEST_CASE("one wrong bit, wherever it is, ends the session and completes nothing") {
  const Digests digests = GENERATE(Digests::kHeader, Digests::kAll);
  const bool data_in = GENERATE(true, false);
  DigestRig rig(digests);
  const size_t covered = kHeaderSize + kDigestSize + (digests == Digests::kAll ? 20 + kDigestSize : 0);
  for (size_t bit = 0; bit < covered * 8; ++bit) {
    rig.session.BeginLogin();
    rig.stat_sn = 100;
    rig.Begin();
    std::vector<char> memory(18);
    const uint32_t tag = rig.Start(Direction::kIn, memory);
    rig.Sent();
    const std::string text(18, 'd');
    Bytes pdu = SessionRig::WithDigests(
        data_in ? rig.DataIn(tag, text) : rig.Pdu(kScsiResponse, kFinal, tag, true, text), digests);
    pdu[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    rig.Receive(pdu);
    CAPTURE(bit);
    REQUIRE(rig.session.corrupted());
    REQUIRE(rig.session.broken());
    REQUIRE(rig.recorder.events.empty());
  }
}

TEST_CASE("a target that rejects data for their digest has found the connection corrupted") {
  DigestRig rig(Digests::kAll);
  rig.Begin();
  Bytes reject = rig.Pdu(kReject, kFinal, kNoTag, true, std::string(kHeaderSize, '\0'));
  reject[2] = GENERATE(uint8_t{2}, uint8_t{4});
  rig.ReceiveWithDigests(reject);
  CHECK(rig.session.broken());
  CHECK(rig.session.corrupted() == (reject[2] == 2));
}

// Large reads go past the session where they may (lun_connection.cc).
TEST_CASE("data with a digest never go past the session") {
  const Digests digests = GENERATE(Digests::kNone, Digests::kHeader, Digests::kAll);
  DigestRig rig(digests);
  rig.LogIn(digests == Digests::kNone ? "" : AgreementTo(digests));
  std::vector<char> memory(65536);
  const uint32_t tag = rig.Start(Direction::kIn, memory);
  rig.Sent();
  const Bytes pdu = SessionRig::WithDigests(rig.DataIn(tag, std::string(65536, 'x')), digests);
  const size_t head = kHeaderSize + (digests == Digests::kNone ? 0 : kDigestSize);
  rig.Receive(Bytes(pdu.begin(), pdu.begin() + static_cast<long>(head)));
  CHECK((rig.session.WholeData() != nullptr) == (digests != Digests::kAll));
}

TEST_CASE("the next login begins without digests") {
  DigestRig rig(Digests::kAll);
  rig.Begin();
  rig.session.BeginLogin();
  rig.stat_sn = 100;
  rig.Begin();
  std::vector<char> memory(16);
  const uint32_t tag = rig.Start(Direction::kIn, memory);
  rig.Sent();
  rig.ReceiveWithDigests(rig.DataIn(tag, std::string(16, 'r')));
  CHECK(rig.recorder.events == std::vector<std::string>{"done 0"});
}

}  // namespace
}  // namespace lunkeeper::iscsi
