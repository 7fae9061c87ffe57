#pragma once
// CHAP with MD5 (RFC 1994, as RFC 7143 section 13 uses it): proves to the target that we know the secret.
// Its contexts are made once; a response costs one small allocation inside the library. Not thread-safe.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace lunkeeper::iscsi {

class Chap {
 public:
  using Digest = std::array<uint8_t, 16>;

  Chap();
  ~Chap();

  // MD5(identifier, secret, challenge); nullopt if the library refuses.
  std::optional<Digest> ComputeResponse(uint8_t identifier, std::string_view secret,
                                        std::string_view challenge);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Decodes a binary value, `0x…` or `0b…` (base 64), into `out`; its length, or nullopt if it is malformed or
// too long.
std::optional<size_t> DecodeBinary(std::string_view text, uint8_t* out, size_t capacity);

}  // namespace lunkeeper::iscsi
