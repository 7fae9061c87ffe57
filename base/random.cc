#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// For at most 256 bytes, which the kernel gives whole or not at all; EINTR comes only while a machine that
// just booted has yet to fill its pool.
void FillRandom(void* buffer, size_t bytes) {
  while (::getrandom(buffer, bytes, 0) != static_cast<ssize_t>(bytes)) {
    if (errno != EINTR) std::abort();
  }
}

}  // namespace

// Enough for ids: of a million volumes, two have the same number with a chance of 1 in 37 million.
uint64_t RandomBits() {
  uint64_t bits = 0;
  FillRandom(&bits, sizeof bits);
  return bits;
}

std::string RandomHexDigits() { return absl::StrCat(absl::Hex(RandomBits(), absl::kZeroPad16)); }

std::string RandomSecret() {
  // 64 characters, so that each byte gives 6 bits with no bias.
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
  unsigned char bytes[16];
  FillRandom(bytes, sizeof bytes);
  std::string secret;
  for (const unsigned char byte : bytes) secret.push_back(kAlphabet[byte & 63]);
  return secret;
}

}  // namespace lunkeeper
