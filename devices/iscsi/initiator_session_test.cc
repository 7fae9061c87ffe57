// The protocol core on canned bytes: what exactly goes out, and what is made of what comes in, however it is
// cut.

#include <catch2/catch.hpp>
#include <string>

#include "devices/iscsi/scsi.h"
#include "devices/iscsi/testing/session_rig.h"

namespace lunkeeper::iscsi {
namespace {

TEST_CASE("a login without a secret offers none, and then the parameters") {
  SessionRig rig;
  const Bytes first = rig.Sent();
  REQUIRE(first[0] == (kLoginRequest | kImmediate));
  REQUIRE(first[1] == 0x81);  // security, ready for the operational stage
  REQUIRE(first.size() % 4 == 0);
  rig.Receive(rig.Pdu(kLoginResponse, 0x81, 0, true, Key("AuthMethod=None") + Key("TargetPortalGroupTag=1")));
  const std::string offer = rig.SentText();
  REQUIRE_THAT(offer, Catch::Contains("HeaderDigest=None ") && Catch::Contains("InitialR2T=No ") &&
                          Catch::Contains("ErrorRecoveryLevel=0 "));
  // The target has something to say first, then agrees.
  rig.Receive(
      rig.Pdu(kLoginResponse, 0x04, 0, true, Key("MaxRecvDataSegmentLength=262143") + Key("X-odd=1")));
  REQUIRE(rig.recorder.events.empty());
  REQUIRE_THAT(rig.SentText(), Catch::Contains("X-odd=NotUnderstood"));
  rig.Receive(rig.Pdu(kLoginResponse, 0x87, 0, true));
  REQUIRE(rig.recorder.events == std::vector<std::string>{"logged in"});
  REQUIRE(rig.session.parameters().max_send_segment == 262140);
}

TEST_CASE("a CHAP challenge is answered with the digest of RFC 1994, never with the secret") {
  SessionRig rig({"user", "secret"});
  REQUIRE_THAT(rig.SentText(), Catch::Contains("AuthMethod=CHAP ") && !Catch::Contains("secret"));
  rig.Receive(rig.Pdu(kLoginResponse, 0x00, 0, true, Key("AuthMethod=CHAP")));
  REQUIRE_THAT(rig.SentText(), Catch::Contains("CHAP_A=5,7 "));  // tgtd takes 7 for SHA-1
  const std::string challenge = GENERATE(as<std::string>(), "0x0102030405060708", "0bAQIDBAUGBwg=");
  rig.Receive(
      rig.Pdu(kLoginResponse, 0x00, 0, true, Key("CHAP_A=5") + Key("CHAP_I=7") + Key("CHAP_C=" + challenge)));
  // printf '\x07secret\x01\x02\x03\x04\x05\x06\x07\x08' | md5sum
  REQUIRE_THAT(rig.SentText(), Catch::Contains("CHAP_N=user ") && !Catch::Contains("secret") &&
                                   Catch::Contains("CHAP_R=0x5bcc06f518a0d62562ac86640126379c "));
}

TEST_CASE("a target may choose SHA-256, and no algorithm that was not offered") {
  SessionRig rig({"user", "secret"});
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x00, 0, true, Key("AuthMethod=CHAP")));
  rig.Sent();
  const std::string chosen = GENERATE(as<std::string>(), "7", "6", "5,7", "");
  rig.Receive(rig.Pdu(kLoginResponse, 0x00, 0, true,
                      Key("CHAP_A=" + chosen) + Key("CHAP_I=7") + Key("CHAP_C=0x0102030405060708")));
  CHECK(rig.session.broken() == (chosen != "7"));
  CHECK_FALSE(rig.session.refused());
  // printf '\x07secret\x01\x02\x03\x04\x05\x06\x07\x08' | sha256sum
  const char* answer = "CHAP_R=0x5449f83ae60e70730f53257299a28ad1009d4dc4c7ae677f1a45f92014198136 ";
  if (chosen == "7") REQUIRE_THAT(rig.SentText(), Catch::Contains(answer));
}

TEST_CASE("what a target leaves out of a command is never taken for done") {
  SessionRig rig;
  rig.LogIn();
  std::vector<char> memory(1024);
  const auto answer = [&](Direction direction, uint8_t flags, uint32_t residual, const std::string& data) {
    const uint32_t tag = rig.Start(direction, memory);
    rig.Sent();
    const bool in = direction == Direction::kIn;
    Bytes pdu =
        rig.Pdu(in ? kDataIn : kScsiResponse, kFinal | flags | (in ? kDataInStatus : 0), tag, true, data);
    Put32(&pdu[kResidualAt], residual);
    rig.Receive(pdu);
    REQUIRE_FALSE(rig.session.broken());
    return rig.recorder.last.transferred;
  };
  CHECK(answer(Direction::kOut, 0, 0, "") == 1024);
  CHECK(answer(Direction::kOut, kResidualUnderflow, 512, "") == 512);
  CHECK(EvaluateCommand(rig.recorder.last, LunOp::kWrite).next == NextStep::kFailed);
  CHECK(answer(Direction::kOut, kResidualUnderflow, 5000, "") == 0);
  CHECK(answer(Direction::kOut, kResidualOverflow, 512, "") ==
        1024);  // there was more to do than was asked for
  // Of a read the data count that have come, and not what the target says of them.
  CHECK(answer(Direction::kIn, kResidualUnderflow, 512, std::string(512, 'd')) == 512);
  CHECK(EvaluateCommand(rig.recorder.last, LunOp::kRead).next == NextStep::kFailed);
  CHECK(answer(Direction::kIn, 0, 0, std::string(512, 'd')) == 512);
  CHECK(answer(Direction::kIn, kResidualUnderflow, 512, std::string(1024, 'd')) == 1024);
}

TEST_CASE("each LUN of a target has an ISID of its own, and at each login the same") {
  SessionRig rig;
  const auto isid = [&rig] {
    const Bytes login = rig.Sent();
    return Bytes(login.begin() + kLunAt, login.begin() + kLunAt + 6);
  };
  REQUIRE(isid() == Bytes{0x80, 0x4c, 0x4b, 0, 0, 1});  // LUN 1, also of programs before this rule
  rig.connection.lun = GENERATE(0, 300, 16383);
  rig.session.BeginLogin();
  const Bytes first = isid();
  CHECK(Get16(&first[4]) == rig.connection.lun);
  rig.session.BeginLogin();
  CHECK(isid() == first);
}

TEST_CASE("a target that breaks the login is left; one that refuses is told apart") {
  SessionRig rig({"user", "secret"});
  rig.Sent();
  bool refused = false;
  SECTION("it goes on without the secret") { rig.Receive(rig.Pdu(kLoginResponse, 0x81, 0, true)); }
  SECTION("a malformed challenge") {
    rig.Receive(
        rig.Pdu(kLoginResponse, 0x00, 0, true, Key("CHAP_A=5") + Key("CHAP_I=700") + Key("CHAP_C=0x11")));
  }
  SECTION("no pairs") { rig.Receive(rig.Pdu(kLoginResponse, 0x00, 0, true, "nonsense")); }
  SECTION("text without end") {
    for (int i = 0; i < 20 && !rig.session.broken(); ++i) {
      rig.Receive(rig.Pdu(kLoginResponse, kLoginContinue, 0, true, std::string(1000, 'x')));
      rig.Sent();
    }
  }
  SECTION("rounds without end") {
    for (int i = 0; i < 50 && !rig.session.broken(); ++i) {
      rig.Receive(rig.Pdu(kLoginResponse, 0, 0, true));
      rig.Sent();
    }
  }
  SECTION("refused") {
    Bytes answer = rig.Pdu(kLoginResponse, 0, 0, true);
    answer[36] = 2;
    answer[37] = 1;
    rig.Receive(answer);
    refused = true;
  }
  REQUIRE(rig.session.broken());
  REQUIRE(rig.session.refused() == refused);
  REQUIRE(rig.recorder.events.empty());
}

TEST_CASE("a target that insists on what we do not do is left") {
  const std::string answer =
      GENERATE(as<std::string>(), "HeaderDigest=CRC32C", "ErrorRecoveryLevel=2", "InitialR2T=Maybe",
               "MaxRecvDataSegmentLength=0", "MaxRecvDataSegmentLength=", "MaxBurstLength=100",
               "FirstBurstLength=99999999999");
  SessionRig rig;
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x81, 0, true));
  rig.Sent();
  rig.Receive(rig.Pdu(kLoginResponse, 0x87, 0, true, Key(answer)));
  REQUIRE(rig.session.broken());
  REQUIRE_FALSE(rig.session.refused());
  REQUIRE_THAT(rig.session.failure(), Catch::Contains(answer.substr(0, 10)));
}

TEST_CASE("data arrives whole, however the stream is cut") {
  const size_t step = GENERATE(1, 3, 47, 48, 49, 1000, 1000000);
  SessionRig rig;
  rig.LogIn();
  std::vector<char> small(10), large(200000);
  const uint32_t first = rig.Start(Direction::kIn, small), second = rig.Start(Direction::kIn, large);
  rig.Sent();
  const std::string content(large.size(), 'L');
  Bytes stream = rig.Pdu(kDataIn, kFinal | kDataInStatus, first, true, "0123456789");
  Bytes part = rig.Pdu(kDataIn, kFinal, second, false, content.substr(0, 99999));
  stream.insert(stream.end(), part.begin(), part.end());
  part = rig.Pdu(kDataIn, kFinal, second, false, content.substr(99999));
  Put32(&part[kDataSnAt], 1);
  Put32(&part[kBufferOffsetAt], 99999);
  stream.insert(stream.end(), part.begin(), part.end());
  part = rig.Pdu(kScsiResponse, kFinal, second, true);
  stream.insert(stream.end(), part.begin(), part.end());
  rig.Receive(stream, step);
  REQUIRE_FALSE(rig.session.broken());
  REQUIRE(rig.recorder.events == std::vector<std::string>{"done 0", "done 0"});
  REQUIRE(rig.recorder.last.transferred == large.size());
  REQUIRE(std::string(small.begin(), small.end()) == "0123456789");
  REQUIRE(std::string(large.begin(), large.end()) == content);
}

TEST_CASE("a large answer is awaited in large pieces, but never more than is to come of it") {
  SessionRig rig;
  rig.LogIn();
  std::vector<char> memory(200000);
  const uint32_t tag = rig.Start(Direction::kIn, memory);
  rig.Sent();
  REQUIRE(rig.session.awaited_bytes() == 1);
  const Bytes pdu = rig.Pdu(kDataIn, kFinal | kDataInStatus, tag, true, std::string(memory.size(), 'L'));
  rig.Receive(Bytes(pdu.begin(), pdu.begin() + 1000));
  REQUIRE(rig.session.awaited_bytes() == 128 << 10);
  rig.Receive(Bytes(pdu.begin() + 1000, pdu.end() - 10));
  REQUIRE(rig.session.awaited_bytes() == 10);
  rig.Receive(Bytes(pdu.end() - 10, pdu.end()));
  REQUIRE(rig.session.awaited_bytes() == 1);
  REQUIRE(rig.recorder.events == std::vector<std::string>{"done 0"});
}

TEST_CASE("data are whole that are all of a good read, as long as none of them has come") {
  struct {
    uint8_t flags, status;
    uint32_t early_status;
    size_t wanted, sent;
    bool whole;
  } const cases[] = {
      {kFinal | kDataInStatus, 0, 0, 4096, 4096, true},  {kFinal, 0, 0, 4096, 4096, false},
      {kFinal | kDataInStatus, 2, 0, 4096, 4096, false}, {kFinal | kDataInStatus, 0, 1, 4096, 4096, false},
      {kFinal | kDataInStatus, 0, 0, 8192, 4096, false}, {kFinal | kDataInStatus, 0, 0, 4095, 4095, false}};
  for (const auto& each : cases) {
    SessionRig rig;
    rig.LogIn();
    std::vector<char> memory(each.wanted);
    const uint32_t tag = rig.Start(Direction::kIn, memory);
    rig.Sent();
    rig.stat_sn += each.early_status;
    Bytes pdu = rig.Pdu(kDataIn, each.flags, tag, true, std::string(each.sent, 'w'));
    pdu[3] = each.status;
    rig.Receive(Bytes(pdu.begin(), pdu.begin() + kHeaderSize));
    CHECK((rig.session.WholeData() != nullptr) == each.whole);
    rig.Receive(Bytes(pdu.begin() + kHeaderSize, pdu.begin() + kHeaderSize + 1));
    CHECK(rig.session.WholeData() == nullptr);
  }
}

TEST_CASE("data that does not belong where it wants to go ends the session") {
  SessionRig rig;
  rig.LogIn();
  std::vector<char> memory(100);
  const bool write = GENERATE(false, true);
  const uint32_t tag = rig.Start(write ? Direction::kOut : Direction::kIn, memory);
  rig.Sent();
  Bytes pdu = rig.Pdu(kDataIn, kFinal | kDataInStatus, tag, true, std::string(100, 'x'));
  if (!write) {
    SECTION("too long") { Put24(&pdu[kDataLengthAt], 101); }
    SECTION("beyond the end") { Put32(&pdu[kBufferOffsetAt], 4); }
    SECTION("an offset that wraps") { Put32(&pdu[kBufferOffsetAt], 0xfffffff0); }
    SECTION("out of sequence") { Put32(&pdu[kDataSnAt], 1); }
    SECTION("another tag") { Put32(&pdu[kTagAt], tag + 0x10000); }
    SECTION("a status out of turn") { Put32(&pdu[kStatSnAt], 5); }
  }
  rig.Receive(pdu);
  REQUIRE(rig.session.broken());
  REQUIRE(rig.recorder.events.empty());
}

TEST_CASE("a write sends what was agreed, and the rest when asked") {
  struct Case {
    const char *immediate, *initial_r2t;
    size_t sent;
    uint32_t next;
  };
  const auto [immediate, initial_r2t, sent, next] =
      GENERATE(Case{"Yes", "Yes", 48 + 1024, 1024}, Case{"No", "Yes", 48, 0},
               Case{"Yes", "No", 4 * 48 + 4096, 4096}, Case{"No", "No", 5 * 48 + 4096, 4096});
  SessionRig rig;
  rig.LogIn(Key("MaxRecvDataSegmentLength=1024") + Key("FirstBurstLength=4096") +
            Key(std::string("ImmediateData=") + immediate) + Key(std::string("InitialR2T=") + initial_r2t));
  std::vector<char> memory(10000, 'w');
  const uint32_t tag = rig.Start(Direction::kOut, memory);
  const Bytes first = rig.Sent();
  REQUIRE(first.size() == sent);
  REQUIRE((first[1] & kFinal) == (std::string(initial_r2t) == "Yes" ? kFinal : 0));
  Bytes r2t = rig.Pdu(kR2t, kFinal, tag, false);
  Put32(&r2t[kBufferOffsetAt], next);
  Put32(&r2t[kR2tLengthAt], 2047);
  rig.Receive(r2t);
  const Bytes rest = rig.Sent();
  REQUIRE(rest.size() == 48 + 1024 + 48 + 1024);  // 2047 bytes, padded
  REQUIRE(rest[0] == kDataOut);
  REQUIRE(rest[1] == 0);
  REQUIRE(rest[48 + 1024 + 1] == kFinal);
  REQUIRE(Get32(&rest[48 + 1024 + kDataSnAt]) == 1);
  rig.Receive(r2t);  // the same again
  REQUIRE(rig.session.broken());
}

TEST_CASE("a write that ends early is not given back while its data is on its way out") {
  SessionRig rig;
  rig.LogIn();
  std::vector<char> memory(4096, 'w');
  const uint32_t tag = rig.Start(Direction::kOut, memory);
  const iovec* pieces;
  REQUIRE(rig.session.OutputPieces(&pieces) == 2);
  rig.session.MarkSent(100);
  Bytes answer = rig.Pdu(kScsiResponse, kFinal, tag, true,
                         std::string("\0\x12\x70\0\x05\0\0\0\0\x0a\0\0\0\0\x21\x02\0\0\0\0", 20));
  answer[3] = 2;
  rig.Receive(answer);
  REQUIRE(rig.recorder.events.empty());
  REQUIRE(rig.Sent().size() == 48 + 4096 - 100);
  REQUIRE(rig.recorder.events == std::vector<std::string>{"done 2"});
  REQUIRE(rig.recorder.last.sense_key == 5);
  REQUIRE(rig.recorder.last.asc == 0x21);
  REQUIRE(rig.recorder.last.ascq == 2);
}

// Recovered, as a success that had some trouble.
TEST_CASE("a write cannot succeed before its data went out, also not with some trouble") {
  const bool recovered = GENERATE(false, true);
  SessionRig rig;
  rig.LogIn(Key("MaxRecvDataSegmentLength=1024") + Key("InitialR2T=Yes"));
  std::vector<char> memory(4096, 'w');
  const uint32_t tag = rig.Start(Direction::kOut, memory);
  rig.Sent();
  Bytes answer = rig.Pdu(kScsiResponse, kFinal, tag, true,
                         std::string("\0\x12\x70\0\x01\0\0\0\0\x0a\0\0\0\0\x17\0\0\0\0\0", 20));
  if (recovered) answer[3] = 2;
  rig.Receive(answer);
  REQUIRE(rig.session.broken());
  REQUIRE(rig.recorder.events.empty());
}

TEST_CASE("the target's window holds commands back until it opens") {
  SessionRig rig;
  rig.max_cmd_sn = 2;
  rig.LogIn();
  std::vector<char> memory(512);
  const uint32_t first = rig.Start(Direction::kIn, memory);
  rig.Start(Direction::kIn, memory);
  REQUIRE(rig.session.NewTask() == nullptr);
  rig.Sent();
  REQUIRE(rig.session.NewTask() == nullptr);
  rig.max_cmd_sn = 3;
  Bytes answer = rig.Pdu(kScsiResponse, kFinal, first, true);
  answer[3] = 8;  // busy
  rig.Receive(answer);
  REQUIRE(rig.session.NewTask() != nullptr);
}

}  // namespace
}  // namespace lunkeeper::iscsi
