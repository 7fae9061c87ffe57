#pragma once
// Time in the core: a Span is a length of time, an Instant a point on the observer's own monotonic clock.
// Both count milliseconds. Points on different clocks have different types, so that nothing compares the
// clocks of two machines. "Never" is an empty std::optional<Instant>; it compares as earlier than every
// Instant. Plain values; nothing fails. No clock is read here: an Instant comes with an event.

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>

namespace lunkeeper::fencing {

class Span {
 public:
  constexpr Span() = default;
  static constexpr Span OfMilliseconds(int64_t count) { return Span(count); }
  static constexpr Span max() { return Span(std::numeric_limits<int64_t>::max()); }
  constexpr int64_t milliseconds() const { return count_; }

  friend constexpr auto operator<=>(const Span&, const Span&) = default;
  friend constexpr Span operator+(Span a, Span b) { return Span(a.count_ + b.count_); }
  friend constexpr Span operator-(Span a, Span b) { return Span(a.count_ - b.count_); }
  friend constexpr Span operator-(Span a) { return Span(-a.count_); }
  friend constexpr Span operator*(int64_t times, Span a) { return Span(times * a.count_); }
  friend constexpr Span operator/(Span a, int64_t by) { return Span(a.count_ / by); }
  friend constexpr Span operator%(Span a, Span b) { return Span(a.count_ % b.count_); }

 private:
  constexpr explicit Span(int64_t count) : count_(count) {}
  int64_t count_ = 0;
};

constexpr Span operator""_ms(unsigned long long count) {
  return Span::OfMilliseconds(static_cast<int64_t>(count));
}
constexpr Span operator""_s(unsigned long long count) {
  return Span::OfMilliseconds(static_cast<int64_t>(count) * 1000);
}

// A point on the clock that `Clock` names; the clock's own start is the default.
template <class Clock>
class InstantOf {
 public:
  constexpr InstantOf() = default;
  constexpr explicit InstantOf(Span since_start) : since_start_(since_start) {}
  constexpr Span since_start() const { return since_start_; }

  friend constexpr auto operator<=>(const InstantOf&, const InstantOf&) = default;
  friend constexpr Span operator-(InstantOf a, InstantOf b) { return a.since_start_ - b.since_start_; }
  friend constexpr InstantOf operator+(InstantOf a, Span b) { return InstantOf(a.since_start_ + b); }
  friend constexpr InstantOf operator-(InstantOf a, Span b) { return InstantOf(a.since_start_ - b); }
  friend constexpr InstantOf& operator+=(InstantOf& a, Span b) { return a = a + b; }

 private:
  Span since_start_;
};

using Instant = InstantOf<struct ObserverClock>;
// By the clock of a machine. How far apart two renewals of its kubelet's lease are is all that it tells.
using KubeletTime = InstantOf<struct KubeletClock>;

// The latest of what has happened: what never did counts for nothing.
constexpr Instant LatestOf(Instant a, Instant b) { return a < b ? b : a; }
constexpr Instant LatestOf(Instant a, std::optional<Instant> b) { return b ? LatestOf(a, *b) : a; }
template <class First, class... More>
constexpr Instant LatestOf(Instant a, First b, More... more) {
  return LatestOf(LatestOf(a, b), more...);
}

}  // namespace lunkeeper::fencing
