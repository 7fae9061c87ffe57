#pragma once
// CHAP with MD5 or SHA-256 (RFC 1994, as RFC 7143 section 12.1.3 uses it): proves to the target that we know
// the secret. Its contexts are made once; a response costs one small allocation inside the library. Not
// thread-safe.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace lunkeeper::iscsi {

// By their numbers in CHAP_A (IANA's registry of PPP authentication algorithms).
enum class ChapAlgorithm : uint8_t { kMd5 = 5, kSha256 = 7 };

// The algorithm that a target has chosen in CHAP_A; nullopt for one that we do not have.
inline std::optional<ChapAlgorithm> ParseChapAlgorithm(std::string_view text) {
  if (text == "5") return ChapAlgorithm::kMd5;
  if (text == "7") return ChapAlgorithm::kSha256;
  return std::nullopt;
}

class Chap {
 public:
  static constexpr size_t kMaxDigest = 32;
  struct Digest {
    std::array<uint8_t, kMaxDigest> bytes;
    unsigned size;  // 16 or 32
    std::span<const uint8_t> view() const { return {bytes.data(), size}; }
  };

  Chap();
  ~Chap();

  // The digest of identifier, secret and challenge; nullopt if the library refuses.
  std::optional<Digest> ComputeResponse(ChapAlgorithm algorithm, uint8_t identifier, std::string_view secret,
                                        std::string_view challenge);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Decodes a binary value, `0x…` or `0b…` (base 64), into `out`; its length, or nullopt if it is malformed or
// too long.
std::optional<size_t> DecodeBinary(std::string_view text, uint8_t* out, size_t capacity);

}  // namespace lunkeeper::iscsi
