// The secret is random and made for one grant, so MD5's weakness to collisions does
// not help anybody: a response proves knowledge of 96 random bits. libcrypto's contexts are made once, since
// each fetch of an algorithm allocates, and a login may happen while write-back of dirty pages waits for
// memory.

#include "devices/iscsi/chap.h"

#include <openssl/evp.h>

namespace lunkeeper::iscsi {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

std::optional<size_t> DecodeHex(std::string_view text, uint8_t* out, size_t capacity) {
  const size_t size = (text.size() + 1) / 2;
  if (text.empty() || size > capacity) return std::nullopt;
  size_t digits = text.size() % 2;  // an odd number of digits: the first is a byte of its own
  size_t at = 0;
  uint8_t byte = 0;
  for (const char c : text) {
    const int digit = HexDigit(c);
    if (digit < 0) return std::nullopt;
    byte = static_cast<uint8_t>(byte << 4 | digit);
    if (++digits % 2 == 0) {
      out[at++] = byte;
      byte = 0;
    }
  }
  return at;
}

std::optional<size_t> DecodeBase64(std::string_view text, uint8_t* out, size_t capacity) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  const size_t size = text.size() * 6 / 8;  // rounded down: the last digit's spare bits are padding
  if (text.empty() || size > capacity) return std::nullopt;
  size_t at = 0;
  uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const int digit = Base64Digit(c);
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out[at++] = static_cast<uint8_t>(bits >> count);
    }
  }
  return at;
}

}  // namespace

struct Chap::Context {
  EVP_MD* md5 = EVP_MD_fetch(nullptr, "MD5", nullptr);
  EVP_MD* sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* digest = EVP_MD_CTX_new();
  ~Context() {
    EVP_MD_CTX_free(digest);
    EVP_MD_free(sha256);
    EVP_MD_free(md5);
  }
};

Chap::Chap() : context_(std::make_unique<Context>()) {
  // The library allocates at the first use.
  for (const auto algorithm : {ChapAlgorithm::kMd5, ChapAlgorithm::kSha256})
    ComputeResponse(algorithm, 0, "", "");
}

Chap::~Chap() = default;

std::optional<Chap::Digest> Chap::ComputeResponse(ChapAlgorithm algorithm, uint8_t identifier,
                                                  std::string_view secret, std::string_view challenge) {
  Digest digest;
  EVP_MD_CTX* context = context_->digest;
  const EVP_MD* hash = algorithm == ChapAlgorithm::kMd5 ? context_->md5 : context_->sha256;
  const bool ok = hash != nullptr && EVP_DigestInit_ex(context, hash, nullptr) == 1 &&
                  EVP_DigestUpdate(context, &identifier, 1) == 1 &&
                  EVP_DigestUpdate(context, secret.data(), secret.size()) == 1 &&
                  EVP_DigestUpdate(context, challenge.data(), challenge.size()) == 1 &&
                  EVP_DigestFinal_ex(context, digest.bytes.data(), &digest.size) == 1;
  if (!ok) return std::nullopt;
  return digest;
}

std::optional<size_t> DecodeBinary(std::string_view text, uint8_t* out, size_t capacity) {
  if (text.size() < 2 || text[0] != '0') return std::nullopt;
  const std::string_view digits = text.substr(2);
  if (text[1] == 'x' || text[1] == 'X') return DecodeHex(digits, out, capacity);
  if (text[1] == 'b' || text[1] == 'B') return DecodeBase64(digits, out, capacity);
  return std::nullopt;
}

}  // namespace lunkeeper::iscsi
