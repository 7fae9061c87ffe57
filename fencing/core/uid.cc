#include "fencing/core/uid.h"

namespace lunkeeper::fencing {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr size_t kUuidLength = 36;

bool IsDash(size_t at) { return at == 8 || at == 13 || at == 18 || at == 23; }

// -1: it is no digit of a UUID.
int DigitOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// False: the text is no UUID.
bool ReadUuid(const std::string& text, std::array<uint64_t, 2>& bits) {
  if (text.size() != kUuidLength) return false;
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDash(i) && text[i] == '-') continue;
    const int digit = DigitOf(text[i]);
    if (digit < 0 || IsDash(i)) return false;
    auto& half = bits[digits++ / 16];
    half = half << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

std::string WriteUuid(const std::array<uint64_t, 2>& bits) {
  std::string text(kUuidLength, '-');
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDash(i)) continue;
    text[i] = kDigits[bits[digits / 16] >> (60 - 4 * (digits % 16)) & 15];
    ++digits;
  }
  return text;
}

}  // namespace

// The UUID of zeros is a text like any other, as zero bits are the empty one.
Uid::Uid(const std::string& text) {
  Bits bits = {};
  if (ReadUuid(text, bits) && bits != Bits{}) {
    kept_ = bits;
  } else if (!text.empty()) {
    kept_ = std::make_shared<const std::string>(text);
  }
}

std::string Uid::value() const {
  if (const auto* text = std::get_if<std::shared_ptr<const std::string>>(&kept_)) return **text;
  const Bits& bits = std::get<Bits>(kept_);
  return bits == Bits{} ? "" : WriteUuid(bits);
}

}  // namespace lunkeeper::fencing
