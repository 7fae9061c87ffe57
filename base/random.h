#pragma once
// Random values from the kernel's generator, getrandom(2), good enough for secrets. Thread-safe, and safe
// between fork and exec. They cannot fail: a process whose kernel has no random numbers for it is aborted,
// since a predictable id or secret is worse than none.

#include <cstdint>
#include <string>

namespace lunkeeper {

// 64 random bits.
uint64_t RandomBits();
// 64 random bits as 16 lower-case hexadecimal digits.
std::string RandomHexDigits();
// A CHAP secret: 96 random bits as 16 characters. RFC 3720 section 8.2.1 asks for 96 bits of randomness at
// least, and some initiators take no secret longer than 16 characters.
std::string RandomSecret();

}  // namespace lunkeeper
