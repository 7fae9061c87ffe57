// CHAP both ways, on canned bytes: the target proves itself to us, or gets no further.

#include <catch2/catch.hpp>
#include <string>

#include "devices/iscsi/chap.h"
#include "devices/iscsi/testing/session_rig.h"

namespace lunkeeper::iscsi {
namespace {

// A login with both secrets, up to our challenge.
struct MutualRig : SessionRig {
  MutualRig() : SessionRig({"user", "secret"}) {
    connection.target_chap = {"target", "of the target"};
    session.BeginLogin();
  }
  // What we send in answer to the target's challenge.
  std::string Challenged(const std::string& challenge = "0x0102030405060708",
                         const std::string& algorithm = "5") {
    Sent();
    Receive(Pdu(kLoginResponse, 0x00, 0, true, Key("AuthMethod=CHAP")));
    Sent();
    Receive(Pdu(kLoginResponse, 0x00, 0, true,
                Key("CHAP_A=" + algorithm) + Key("CHAP_I=7") + Key("CHAP_C=" + challenge)));
    return session.broken() ? "" : SentText();
  }
  static std::string ValueOf(const std::string& key, const std::string& text) {
    const size_t at = text.find(key + "=") + key.size() + 1;
    return text.substr(at, text.find(' ', at) - at);
  }
  // The target's answer to what we sent, with this secret.
  static std::string AnswerTo(const std::string& sent, const std::string& secret,
                              ChapAlgorithm algorithm = ChapAlgorithm::kMd5) {
    uint8_t challenge[64];
    const auto length = DecodeBinary(ValueOf("CHAP_C", sent), challenge, sizeof challenge);
    const auto digest =
        Chap().ComputeResponse(algorithm, static_cast<uint8_t>(std::stoi(ValueOf("CHAP_I", sent))), secret,
                               {reinterpret_cast<char*>(challenge), *length});
    std::string response = "0x";
    for (const uint8_t byte : digest->view()) {
      response += "0123456789abcdef"[byte >> 4];
      response += "0123456789abcdef"[byte & 15];
    }
    return Key("CHAP_N=target") + Key("CHAP_R=" + response);
  }
};

TEST_CASE_METHOD(MutualRig,
                 "a target that knows its secret is let on, and each login has another challenge") {
  const std::string sent = Challenged();
  REQUIRE_THAT(sent, Catch::Contains("CHAP_N=user ") && Catch::Contains("CHAP_R=0x5bcc06f5") &&
                         !Catch::Contains("of the target"));
  Receive(Pdu(kLoginResponse, 0x81, 0, true, AnswerTo(sent, "of the target")));
  Sent();
  Receive(Pdu(kLoginResponse, 0x87, 0, true));
  REQUIRE(recorder.events == std::vector<std::string>{"logged in"});
  session.BeginLogin();
  stat_sn = 100;
  const std::string again = Challenged();
  CHECK(ValueOf("CHAP_C", again) != ValueOf("CHAP_C", sent));
  CHECK(ValueOf("CHAP_I", again) != ValueOf("CHAP_I", sent));
}

TEST_CASE_METHOD(MutualRig, "a target that has chosen SHA-256 proves itself by that, and by nothing else") {
  const ChapAlgorithm proof = GENERATE(ChapAlgorithm::kSha256, ChapAlgorithm::kMd5);
  const std::string sent = Challenged("0x0102030405060708", "7");
  Receive(Pdu(kLoginResponse, 0x81, 0, true, AnswerTo(sent, "of the target", proof)));
  CHECK(session.broken() == (proof != ChapAlgorithm::kSha256));
}

TEST_CASE_METHOD(MutualRig, "a target that does not prove itself gets no further, and may be another later") {
  SECTION("another secret") {
    Receive(Pdu(kLoginResponse, 0x81, 0, true, AnswerTo(Challenged(), "of another")));
  }
  SECTION("our own secret, as one has it who reads our answers only") {
    Receive(Pdu(kLoginResponse, 0x81, 0, true, AnswerTo(Challenged(), "secret")));
  }
  SECTION("no answer") {
    Challenged();
    Receive(Pdu(kLoginResponse, 0x81, 0, true));
  }
  SECTION("half an answer") {
    const std::string answer = AnswerTo(Challenged(), "of the target");
    Receive(Pdu(kLoginResponse, 0x81, 0, true, answer.substr(0, answer.size() - 3) + '\0'));
  }
  SECTION("an answer before the question") {
    Sent();
    Receive(Pdu(kLoginResponse, 0x00, 0, true, Key("CHAP_N=target") + Key("CHAP_R=0x00")));
  }
  SECTION("our own challenge of the login before") {
    const std::string ours = ValueOf("CHAP_C", Challenged());
    session.BeginLogin();
    stat_sn = 100;
    Challenged(ours);
  }
  CHECK(session.broken());
  CHECK_FALSE(session.refused());
  CHECK(recorder.events.empty());
}

}  // namespace
}  // namespace lunkeeper::iscsi
