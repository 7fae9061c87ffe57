#pragma once
// How long each connection to a tgtd's portals has been answered, from looks at them each second or so: who
// wants more places than its address has must not be able to buy them in a moment. So what counts is in how
// many periods of 10 seconds tgtd had something answered that the peer took. The session of a node counts in
// each period, as it sends a ping after 5 seconds without an answer. However much a younger connection has
// answered, it counts in no more of them.
//
// Passive: the caller says what time it is. Thread-compatible.

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>

namespace lunkeeper {

// The greater one has the better right to stay.
struct Standing {
  bool lively = false;    // answered in this period or the one before; else it gives way to any that is
  uint32_t periods = 0;   // in which it was answered, and which are over
  int64_t age_looks = 0;  // since it was seen first
  auto operator<=>(const Standing&) const = default;
};

class ConnectionHistory {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPeriod{10};

  void BeginLook(SteadyTime now);
  // Of the connection with this cookie, once in each look; `answered`: bytes that its peer has taken so far.
  Standing NoteConnection(uint64_t cookie, uint64_t answered);
  void EndLook();  // forgets all that were not noted in it
  size_t size() const { return known_.size(); }

 private:
  struct Known {
    uint64_t answered = 0;  // bytes
    uint32_t periods = 0;
    int64_t last_period = kNever;
    int64_t first_look = 0, last_look = 0;
  };
  static constexpr int64_t kNever = -2;  // as of a period that is long over

  std::map<uint64_t, Known> known_;  // by the socket's cookie
  int64_t period_ = 0;               // which it is
  int64_t look_ = 0;
};

}  // namespace lunkeeper
