#pragma once
// The uid of an orchestrator's object: a re-created one has another. Any text, and nearly always a UUID, of
// which the bits are kept: there are a hundred thousand of them. Ordered as its text. A plain value; nothing
// fails.

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

namespace lunkeeper::fencing {

class Uid {
 public:
  Uid() = default;
  explicit Uid(const std::string& text);

  std::string value() const;
  bool empty() const { return *this == Uid(); }

  friend bool operator==(const Uid& a, const Uid& b) { return std::is_eq(a <=> b); }
  friend std::strong_ordering operator<=>(const Uid& a, const Uid& b) {
    const Bits *left = std::get_if<Bits>(&a.kept_), *right = std::get_if<Bits>(&b.kept_);
    return left && right ? *left <=> *right : a.value().compare(b.value()) <=> 0;
  }

 private:
  using Bits = std::array<uint64_t, 2>;  // of a UUID as it is written in lower case; zero: empty
  std::variant<Bits, std::shared_ptr<const std::string>> kept_;
};

}  // namespace lunkeeper::fencing
