// Every text comes from a target that has proved nothing yet, so each value is parsed within bounds, and a
// key that we did not offer is answered NotUnderstood (RFC 7143, 6.2). What matters for safety is the line
// between a refusal and a failure: only the status class 2, and a Reject of our way to authenticate,
// are final; all else leads to another attempt. A grant that was released or fenced is answered with class 2
// by our array, since the target no longer exists or has another secret.
//
// With the target's secret, CHAP goes both ways: our response carries a challenge of our own, fresh for each
// login, and no login leaves the security stage before the target has answered it. A target that does not
// know the secret is no refusal: it may be somebody else who sits in the path now, and not later.

#include "devices/iscsi/login.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/random.h"
#include "devices/iscsi/pdu.h"

namespace lunkeeper::iscsi {
namespace {

constexpr int kMaxRounds = 32;             // a target that never ends is broken
constexpr size_t kMaxChallenge = 1024;     // RFC 7143, 12.1.3
constexpr uint32_t kMaxLength = 0xffffff;  // of the length keys, 512 to 2^24-1
// MD5 and SHA-256 (chap.h). MD5 first: tgtd takes the first that it knows, and 7 for SHA-1. A target that has
// to do without MD5 takes the other.
constexpr char kChapAlgorithms[] = "5,7";

constexpr char kNoDigest[] = "this machine's OpenSSL refuses the CHAP algorithm";

std::optional<uint32_t> ParseNumber(std::string_view text, uint32_t low, uint32_t high) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return std::nullopt;
  }
  return value;
}

std::optional<bool> ParseBoolean(std::string_view text) {
  if (text == "Yes") return true;
  if (text == "No") return false;
  return std::nullopt;
}

bool IsIn(std::initializer_list<std::string_view> list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// As CHAP_R and CHAP_C are written.
void AddBinary(TextBuffer& text, std::string_view key, std::span<const uint8_t> bytes) {
  char hex[2 + 2 * Chap::kMaxDigest + 1] = "0x";
  for (size_t i = 0; i < bytes.size(); ++i) std::snprintf(hex + 2 + 2 * i, 3, "%02x", bytes[i]);
  text.AddPair(key, hex);
}

bool IsSame(std::span<const uint8_t> ours, const uint8_t* bytes, size_t size) {
  return size == ours.size() && CRYPTO_memcmp(ours.data(), bytes, size) == 0;
}

// Why the target refused (RFC 7143, 11.13.5).
const char* RefusalText(uint8_t detail) {
  switch (detail) {
    case 0x01:
      return "authentication failed: the secret is not, or no longer, the grant's";
    case 0x02:
      return "this initiator may not use the target";
    case 0x03:
      return "target not found: the grant was released or fenced";
    case 0x04:
      return "target removed: the grant was released or fenced";
    default:
      return "the login request was refused";
  }
}

}  // namespace

void LoginPhase::BeginLogin() {
  parameters_ = NegotiatedParameters();
  stage_ = offered_ = Stage::kSecurity;
  rounds_ = 0;
  moved_to_ = {};
  response_.Clear();
  request_.Clear();
  request_.AddPair("InitiatorName", connection_.initiator.value());
  request_.AddPair("TargetName", connection_.target.value());
  request_.AddPair("SessionType", "Normal");
  authenticated_ = connection_.chap.user.empty();
  proved_ = connection_.target_chap.secret.empty();
  request_.AddPair("AuthMethod", authenticated_ ? "None" : "CHAP");
  transit_ = authenticated_;
}

// CSG in bits 2-3, NSG in bits 0-1, T in bit 7 (RFC 7143, 11.12).
uint8_t LoginPhase::flags() const {
  const auto current = static_cast<uint8_t>(static_cast<uint8_t>(stage_) << 2);
  if (!transit_) return current;
  const Stage next = stage_ == Stage::kSecurity ? Stage::kOperational : Stage::kFullFeature;
  return static_cast<uint8_t>(kLoginTransit | current | static_cast<uint8_t>(next));
}

LoginStep LoginPhase::OnResponse(uint8_t flags, uint8_t status_class, uint8_t status_detail,
                                 std::string_view text) {
  if (status_class != 0) return OnRefusal(status_class, status_detail, text);
  if (++rounds_ > kMaxRounds) return BreakWith("the target never ends the negotiation");
  if (((flags >> 2) & 3) != static_cast<uint8_t>(stage_))
    return BreakWith("the target is in another login stage");
  response_.Append(text);
  if (response_.overflowed()) return BreakWith("the target's text is too long");
  request_.Clear();
  if ((flags & kLoginContinue) != 0) return LoginStep::kSend;  // an empty request asks for the rest

  const std::string_view whole = response_.view();
  // Only whole texts are parsed: a value may be cut anywhere between two PDUs.
  const LoginStep step = stage_ == Stage::kSecurity ? OnSecurityText(whole) : OnOperationalText(whole);
  response_.Clear();
  if (step != LoginStep::kSend) return step;
  const LoginStep next = AdvanceStage(flags);
  if (request_.overflowed()) return BreakWith("a name or secret is too long");
  return next;
}

LoginStep LoginPhase::OnRefusal(uint8_t status_class, uint8_t status_detail, std::string_view text) {
  if (status_class == 1) return OnRedirect(status_detail, text);
  if (status_class == 2) {
    failure_.Format("%s (status 02%02x)", RefusalText(status_detail), status_detail);
    return LoginStep::kRefused;
  }
  failure_.Format("the target cannot take the login now (status %02x%02x)", status_class, status_detail);
  return LoginStep::kBroken;
}

// Whether to follow is not decided here. Never a refusal for good, also not of "moved permanently": it says
// that another portal serves the target, and this one has proved nothing yet.
LoginStep LoginPhase::OnRedirect(uint8_t status_detail, std::string_view text) {
  while (const std::optional<TextPair> pair = NextPair(text)) {
    if (pair->key == "TargetAddress")
      moved_to_.Format("%.*s", static_cast<int>(pair->value.size()), pair->value.data());
  }
  failure_.Format("the target sends logins to %.60s (status 01%02x), which has to be a portal of the volume",
                  moved_to().empty() ? "nowhere" : moved_to_.text(), status_detail);
  return LoginStep::kBroken;
}

LoginStep LoginPhase::OnSecurityText(std::string_view text) {
  std::string_view algorithm, identifier, challenge, response;
  while (const std::optional<TextPair> pair = NextPair(text)) {
    if (pair->key == "AuthMethod") {
      if (pair->value == "Reject") {
        failure_.Format("the target wants another way to authenticate than %s",
                        connection_.chap.user.empty() ? "none" : "CHAP");
        return LoginStep::kRefused;
      }
      if (pair->value == "CHAP" && !authenticated_) request_.AddPair("CHAP_A", kChapAlgorithms);
    } else if (pair->key == "CHAP_A") {
      algorithm = pair->value;
    } else if (pair->key == "CHAP_I") {
      identifier = pair->value;
    } else if (pair->key == "CHAP_C") {
      challenge = pair->value;
    } else if (pair->key == "CHAP_R") {
      response = pair->value;
    }
  }
  if (!text.empty()) return BreakWith("the target's text is malformed");
  if (!response.empty()) return CheckTarget(response);
  if (algorithm.empty() && identifier.empty() && challenge.empty()) return LoginStep::kSend;
  return AnswerChallenge(algorithm, identifier, challenge);
}

LoginStep LoginPhase::AnswerChallenge(std::string_view algorithm, std::string_view identifier,
                                      std::string_view challenge) {
  uint8_t bytes[kMaxChallenge];
  const std::optional<size_t> length = DecodeBinary(challenge, bytes, sizeof bytes);
  const std::optional<uint32_t> id = ParseNumber(identifier, 0, 255);
  const std::optional<ChapAlgorithm> chosen = ParseChapAlgorithm(algorithm);
  if (authenticated_ || !chosen || !length || !id)
    return BreakWith("the target's CHAP challenge is malformed");
  // A target that sends back what we sent wants to learn the answer to it (RFC 7143, 12.1.3).
  if (!proved_ && (IsSame(challenge_, bytes, *length) || IsSame(last_challenge_, bytes, *length)))
    return BreakWith("the target sends our own CHAP challenge back");
  algorithm_ = *chosen;
  const std::optional<Chap::Digest> digest =
      chap_.ComputeResponse(algorithm_, static_cast<uint8_t>(*id), connection_.chap.secret,
                            {reinterpret_cast<char*>(bytes), *length});
  if (!digest) return BreakWith(kNoDigest);
  request_.AddPair("CHAP_N", connection_.chap.user);
  AddBinary(request_, "CHAP_R", digest->view());
  if (!proved_) ChallengeTarget();
  authenticated_ = true;
  return LoginStep::kSend;
}

void LoginPhase::ChallengeTarget() {
  last_challenge_ = challenge_;
  const uint64_t bits[2] = {RandomBits(), RandomBits()};
  static_assert(sizeof bits == sizeof challenge_);
  std::memcpy(challenge_.data(), bits, sizeof bits);
  char identifier[4];
  std::snprintf(identifier, sizeof identifier, "%u", ++challenge_id_);
  request_.AddPair("CHAP_I", identifier);
  AddBinary(request_, "CHAP_C", challenge_);
}

LoginStep LoginPhase::CheckTarget(std::string_view response) {
  if (!authenticated_ || proved_) return BreakWith("the target answers a CHAP challenge that was not sent");
  uint8_t bytes[Chap::kMaxDigest];
  const std::optional<size_t> length = DecodeBinary(response, bytes, sizeof bytes);
  const std::optional<Chap::Digest> wanted =
      chap_.ComputeResponse(algorithm_, challenge_id_, connection_.target_chap.secret,
                            {reinterpret_cast<const char*>(challenge_.data()), challenge_.size()});
  if (!wanted) return BreakWith(kNoDigest);
  if (!length || !IsSame(wanted->view(), bytes, *length))
    return BreakWith("the target does not know the secret by which it has to prove itself");
  proved_ = true;
  return LoginStep::kSend;
}

LoginStep LoginPhase::OnOperationalText(std::string_view text) {
  while (const std::optional<TextPair> pair = NextPair(text)) {
    if (OnOperationalPair(*pair)) continue;
    failure_.Format("the target answered %.*s=%.*s, which cannot be", static_cast<int>(pair->key.size()),
                    pair->key.data(), static_cast<int>(std::min<size_t>(pair->value.size(), 40)),
                    pair->value.data());
    return LoginStep::kBroken;
  }
  return text.empty() ? LoginStep::kSend : BreakWith("the target's text is malformed");
}

// False for a value that we cannot work with. What is declared (MaxRecvDataSegmentLength) is the target's
// own; what is negotiated is the result that it has computed from both offers (RFC 7143, 13).
bool LoginPhase::OnOperationalPair(const TextPair& pair) {
  const auto length = [&pair](uint32_t& into) {
    const std::optional<uint32_t> value = ParseNumber(pair.value, 512, kMaxLength);
    if (value) into = *value;
    return value.has_value();
  };
  const auto boolean = [&pair](bool& into) {
    const std::optional<bool> value = ParseBoolean(pair.value);
    if (value) into = *value;
    return value.has_value();
  };
  // MissingDigest finds a refusal, as it finds silence.
  const auto digest = [&pair](bool wanted, bool& agreed) {
    agreed = wanted && pair.value == "CRC32C";
    return agreed || pair.value == "None";
  };
  if (IsIn({"Irrelevant", "NotUnderstood", "Reject"}, pair.value)) return true;  // the default holds
  if (pair.key == "MaxRecvDataSegmentLength") return length(parameters_.max_send_segment);
  if (pair.key == "MaxBurstLength") return length(parameters_.max_burst);
  if (pair.key == "FirstBurstLength") return length(parameters_.first_burst);
  if (pair.key == "InitialR2T") return boolean(parameters_.initial_r2t);
  if (pair.key == "ImmediateData") return boolean(parameters_.immediate_data);
  if (pair.key == "HeaderDigest") return digest(WantsHeaderDigest(), parameters_.header_digest);
  if (pair.key == "DataDigest") return digest(WantsDataDigest(), parameters_.data_digest);
  if (IsIn({"DataPDUInOrder", "DataSequenceInOrder"}, pair.key)) return pair.value == "Yes";
  if (pair.key == "ErrorRecoveryLevel") return pair.value == "0";
  if (IsIn({"MaxOutstandingR2T", "MaxConnections"}, pair.key)) return pair.value == "1";
  if (IsIn({"DefaultTime2Wait", "DefaultTime2Retain", "TargetAlias", "TargetAddress", "TargetPortalGroupTag"},
           pair.key)) {
    return true;
  }
  // Markers were dropped by RFC 7143; older targets still ask for them.
  request_.AddPair(pair.key, IsIn({"IFMarker", "OFMarker"}, pair.key) ? "No" : "NotUnderstood");
  return true;
}

// Long bursts and immediate data, to save round trips; digests only where they are asked for, and then
// nothing else; one connection, level 0, so that recovery is ours alone (iscsi_lun.h). Time2Wait and
// Time2Retain 0: after a lost connection the target keeps no task of it waiting.
void LoginPhase::OfferParameters() {
  static_assert(kMaxReceiveSegment == 1048576);
  request_.AddPair("HeaderDigest", WantsHeaderDigest() ? "CRC32C" : "None");
  request_.AddPair("DataDigest", WantsDataDigest() ? "CRC32C" : "None");
  request_.AddPair("MaxRecvDataSegmentLength", "1048576");
  request_.AddPair("MaxBurstLength", "1048576");
  request_.AddPair("FirstBurstLength", "1048576");
  request_.AddPair("InitialR2T", "No");
  request_.AddPair("ImmediateData", "Yes");
  request_.AddPair("MaxOutstandingR2T", "1");
  request_.AddPair("MaxConnections", "1");
  request_.AddPair("ErrorRecoveryLevel", "0");
  request_.AddPair("DataPDUInOrder", "Yes");
  request_.AddPair("DataSequenceInOrder", "Yes");
  request_.AddPair("DefaultTime2Wait", "0");
  request_.AddPair("DefaultTime2Retain", "0");
}

// No refusal for good: the login itself has no digests, so this may be an accident on the way, and the target
// of another portal may be a newer one. Null: what was asked for was agreed to.
const char* LoginPhase::MissingDigest() const {
  if (WantsHeaderDigest() && !parameters_.header_digest)
    return "the target does not use header digests, which the volume asks for";
  if (WantsDataDigest() && !parameters_.data_digest)
    return "the target does not use data digests, which the volume asks for";
  return nullptr;
}

// Moves on if both sides are ready for the next stage, and prepares what is to be sent there.
LoginStep LoginPhase::AdvanceStage(uint8_t flags) {
  const bool moves = (flags & kLoginTransit) != 0;
  if (moves && !transit_) return BreakWith("the target went on without us");
  if (moves && stage_ == Stage::kOperational) {
    if ((flags & 3) != static_cast<uint8_t>(Stage::kFullFeature))
      return BreakWith("the target chose an odd stage");
    if (const char* missing = MissingDigest()) return BreakWith(missing);
    parameters_.max_send_segment = parameters_.max_send_segment & ~3u;  // so that only ends need padding
    return LoginStep::kDone;
  }
  if (moves && (flags & 3) != static_cast<uint8_t>(Stage::kOperational))
    return BreakWith("the target chose an odd stage");
  if (moves && !proved_) return BreakWith("the target does not prove itself");
  if (moves) stage_ = Stage::kOperational;
  if (stage_ == Stage::kOperational && offered_ != Stage::kOperational) {
    offered_ = Stage::kOperational;
    OfferParameters();
  }
  transit_ = stage_ == Stage::kOperational || authenticated_;
  return LoginStep::kSend;
}

LoginStep LoginPhase::BreakWith(const char* what) {
  failure_.Format("login failed: %s", what);
  return LoginStep::kBroken;
}

}  // namespace lunkeeper::iscsi
