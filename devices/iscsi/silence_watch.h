#pragma once
// When the other end of a connection was last heard, and what its silence calls for: first a ping, and when
// that is not answered either, the end of the connection. Passive; the caller says what time it is.

#include <algorithm>
#include <chrono>
#include <utility>

namespace lunkeeper::iscsi {

// How long a connection may be silent before it is given up: `longest`, or where there is another way
// `shortest`. A target that is slow, and not cut off, is silent at each portal: then each move only throws
// away what it was working on, so the limit doubles with each move that led to nothing.
class SilenceLimit {
 public:
  using Duration = std::chrono::steady_clock::duration;
  SilenceLimit(Duration shortest, Duration longest)
      : shortest_(std::min(shortest, longest)), longest_(longest), limit_(shortest_) {}

  Duration limit() const { return limit_; }
  void OnMove() { limit_ = std::min(2 * limit_, longest_); }
  // The last move has led to something. Whether that makes the limit shorter: also that of this connection.
  bool OnProgress() { return std::exchange(limit_, shortest_) != shortest_; }

 private:
  const Duration shortest_, longest_;
  Duration limit_;
};

class SilenceWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on. `dead_after` is well above `ping_after`, so that the ping can be answered.
  void Start(Clock::time_point now, Clock::duration ping_after, Clock::duration dead_after) {
    ping_after_ = ping_after;
    dead_after_ = dead_after;
    OnHeard(now);
  }

  void OnHeard(Clock::time_point now) {
    last_heard_ = now;
    pinged_ = false;
  }

  bool IsDead(Clock::time_point now) const { return now - last_heard_ >= dead_after_; }
  // True once in each silence: the caller sends the ping.
  bool TakePing(Clock::time_point now) {
    return now - last_heard_ >= ping_after_ && !std::exchange(pinged_, true);
  }
  // When to ask the two above again.
  Clock::time_point next_check() const { return last_heard_ + (pinged_ ? dead_after_ : ping_after_); }
  Clock::time_point last_heard() const { return last_heard_; }

 private:
  Clock::duration ping_after_{};
  Clock::duration dead_after_{};
  Clock::time_point last_heard_;
  bool pinged_ = false;
};

}  // namespace lunkeeper::iscsi
