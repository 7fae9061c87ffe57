#pragma once
// The login phase of one connection, without its socket: security negotiation (CHAP if the connection has a
// secret, and both ways if it has the target's; None otherwise), then the operational parameters (RFC 7143,
// sections 6 and 13).
// The caller sends text() with flags() in a login request, passes the answer to OnResponse, and repeats this
// until it is over:
//
//   security (names, AuthMethod; with a secret: CHAP_A, then CHAP_N and CHAP_R, with our own challenge if the
//     target has to prove itself) --> operational (parameters) --> full feature phase
//
// Each side says in its flags (T bit) that it is ready for the next stage; a stage ends when both do. One
// thread; nothing allocates after the constructor (but see chap.h). The connection given to it must outlive
// it.

#include <array>
#include <cstdint>
#include <string_view>

#include "devices/iscsi/chap.h"
#include "devices/iscsi/reason.h"
#include "devices/iscsi/text.h"
#include "devices/types.h"

namespace lunkeeper::iscsi {

// What both sides agreed to; the standard's defaults until then. Lengths in bytes.
struct NegotiatedParameters {
  uint32_t max_send_segment = 8192;  // the target's MaxRecvDataSegmentLength
  uint32_t max_burst = 262144;
  uint32_t first_burst = 65536;
  bool initial_r2t = true;
  bool immediate_data = true;
  bool header_digest = false, data_digest = false;
};

enum class LoginStep {
  kSend,     // send text() next
  kDone,     // full feature phase
  kRefused,  // the target does not want us, and will not later
  kBroken,   // this attempt failed; another may not
};

class LoginPhase {
 public:
  static constexpr uint32_t kMaxReceiveSegment = 1 << 20;  // what we declare

  explicit LoginPhase(const Connection& connection) : connection_(connection) {}

  void BeginLogin();
  // `flags` are byte 1 of the login response; status is its class and detail.
  LoginStep OnResponse(uint8_t flags, uint8_t status_class, uint8_t status_detail, std::string_view text);

  uint8_t flags() const;
  std::string_view text() const { return request_.view(); }
  const NegotiatedParameters& parameters() const { return parameters_; }
  const char* failure() const { return failure_.text(); }
  // The TargetAddress of a redirect (RFC 7143, 13.8); empty: there was none in this login.
  std::string_view moved_to() const { return moved_to_.text(); }

 private:
  enum class Stage : uint8_t { kSecurity = 0, kOperational = 1, kFullFeature = 3 };

  LoginStep OnRefusal(uint8_t status_class, uint8_t status_detail, std::string_view text);
  LoginStep OnRedirect(uint8_t status_detail, std::string_view text);
  LoginStep OnSecurityText(std::string_view text);
  LoginStep AnswerChallenge(std::string_view algorithm, std::string_view identifier,
                            std::string_view challenge);
  void ChallengeTarget();
  LoginStep CheckTarget(std::string_view response);
  LoginStep OnOperationalText(std::string_view text);
  bool OnOperationalPair(const TextPair& pair);
  bool WantsHeaderDigest() const { return connection_.digests >= Digests::kHeader; }
  bool WantsDataDigest() const { return connection_.digests >= Digests::kAll; }
  const char* MissingDigest() const;
  void OfferParameters();
  LoginStep AdvanceStage(uint8_t flags);
  LoginStep BreakWith(const char* what);

  const Connection& connection_;
  Chap chap_;
  TextBuffer request_;
  TextBuffer response_;  // gathered while the target continues its text in further PDUs
  Reason failure_, moved_to_;
  NegotiatedParameters parameters_;
  Stage stage_ = Stage::kSecurity;
  Stage offered_ = Stage::kSecurity;               // what the parameters were offered for
  bool transit_ = false;                           // we are ready for the next stage
  bool authenticated_ = false;                     // we have answered the challenge, or need not
  bool proved_ = false;                            // the target has answered ours, or need not
  ChapAlgorithm algorithm_ = ChapAlgorithm::kMd5;  // that the target has chosen of ours
  // Ours, of this login and of the one before it.
  using Challenge = std::array<uint8_t, 16>;
  Challenge challenge_{}, last_challenge_{};
  uint8_t challenge_id_ = 0;
  int rounds_ = 0;
};

}  // namespace lunkeeper::iscsi
