#pragma once
// Key=value text of the login phase (RFC 7143, section 6.1) in fixed buffers: nothing allocates. Not
// thread-safe.

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace lunkeeper::iscsi {

// A text under construction: `key=value` pairs, each ended by a zero byte.
class TextBuffer {
 public:
  // The default MaxRecvDataSegmentLength, which holds until login is over.
  static constexpr size_t kCapacity = 8192;

  void Clear() {
    size_ = 0;
    overflowed_ = false;
  }
  void AddPair(std::string_view key, std::string_view value) {
    Append(key);
    Append("=");
    Append(value);
    Append(std::string_view("\0", 1));
  }
  void Append(std::string_view text) {
    if (text.size() > kCapacity - size_) {
      overflowed_ = true;
      return;
    }
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  std::string_view view() const { return {bytes_.data(), size_}; }
  bool overflowed() const { return overflowed_; }

 private:
  std::array<char, kCapacity> bytes_;
  size_t size_ = 0;
  bool overflowed_ = false;
};

struct TextPair {
  std::string_view key, value;
};

// Takes the first pair off `text`; nullopt at its end, or at something that is no pair (then `text` is not
// empty).
inline std::optional<TextPair> NextPair(std::string_view& text) {
  while (!text.empty() && text.front() == '\0') text.remove_prefix(1);  // padding
  const std::string_view line = text.substr(0, text.find('\0'));
  const size_t equals = line.find('=');
  if (line.empty() || equals == 0 || equals == std::string_view::npos) return std::nullopt;
  text.remove_prefix(line.size());
  return TextPair{line.substr(0, equals), line.substr(equals + 1)};
}

}  // namespace lunkeeper::iscsi
