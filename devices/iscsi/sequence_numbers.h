#pragma once
// The sequence numbers of a session with one connection (RFC 7143, 4.2.2): CmdSN of our commands within the
// window that the target opens, and StatSN of its answers. Plain values, one thread.

#include <cstdint>

#include "devices/iscsi/pdu.h"

namespace lunkeeper::iscsi {

class SequenceNumbers {
 public:
  void Restart() { *this = SequenceNumbers(); }

  uint32_t cmd_sn() const { return cmd_sn_; }
  uint32_t exp_stat_sn() const { return exp_stat_sn_; }

  // Whether the target's window has room for one command more than the commands that still have no number.
  bool HasRoom(uint32_t unnumbered) const { return !SerialLess(max_cmd_sn_, cmd_sn_ + unnumbered); }
  // A command has been given cmd_sn().
  void CountCommand() { ++cmd_sn_; }

  // Takes the window that any PDU of the target carries. Older ones and such that contradict themselves are
  // ignored, as 4.2.2.1 asks.
  void UpdateWindow(const uint8_t* header) {
    const uint32_t expected = Get32(header + kExpCmdSnAt);
    const uint32_t max = Get32(header + kMaxCmdSnAt);
    if (SerialLess(max, expected - 1)) return;
    if (SerialLess(max_cmd_sn_, max)) max_cmd_sn_ = max;
  }

  // The target chooses its first StatSN at login.
  void SetStatSn(uint32_t stat_sn) { exp_stat_sn_ = stat_sn + 1; }
  // False if it is not the one that is due: at error recovery level 0 nothing can be missing in between.
  bool TakeStatSn(uint32_t stat_sn) {
    if (stat_sn != exp_stat_sn_) return false;
    ++exp_stat_sn_;
    return true;
  }

 private:
  uint32_t cmd_sn_ = 1, max_cmd_sn_ = 1, exp_stat_sn_ = 0;
};

}  // namespace lunkeeper::iscsi
