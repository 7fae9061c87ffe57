#pragma once
// HMAC with SHA-256 (RFC 2104), by OpenSSL. Thread-safe. It cannot fail: a library without SHA-256 ends the
// process, since to go on would be to sign with nothing.

#include <cstddef>
#include <string>
#include <string_view>

namespace lunkeeper {

constexpr size_t kHmacBytes = 32;

std::string HmacSha256(std::string_view key, std::string_view text);
// In a time that does not tell where they differ.
bool IsSameSecret(std::string_view a, std::string_view b);

}  // namespace lunkeeper
