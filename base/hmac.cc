#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

namespace lunkeeper {

std::string HmacSha256(std::string_view key, std::string_view text) {
  std::string digest(kHmacBytes, '\0');
  unsigned int size = 0;
  const unsigned char* const made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                         reinterpret_cast<unsigned char*>(digest.data()), &size);
  LK_CHECK(made != nullptr && size == kHmacBytes, "OpenSSL has SHA-256");
  return digest;
}

bool IsSameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lunkeeper
