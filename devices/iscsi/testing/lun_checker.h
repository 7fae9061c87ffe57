#pragma once
// A checking load on a Lun, on the test's thread.

#include <algorithm>
#include <cstring>
#include <random>

#include "devices/iscsi/testing/lun_driver.h"

namespace lunkeeper {

// Writes rising numbers to random blocks of a few, one write a block at a time, and reads them back: a block
// that holds less than what was acknowledged was overtaken by an older write, and one that holds two numbers
// was changed on the way.
class LunChecker {
 public:
  static constexpr uint64_t kBlocks = 64, kDepth = 16;

  explicit LunChecker(Lun* lun) : lun_(lun) {
    for (Slot& slot : slots_) {
      slot.checker = this;
      slot.length = sizeof slot.buffer;
      slot.done = [](LunRequest* request) {
        static_cast<Slot*>(request)->checker->OnDone(*static_cast<Slot*>(request));
      };
    }
  }
  void Begin() {
    stopping_ = false;
    for (Slot& slot : slots_) SubmitNext(slot);
  }
  void Stop() { stopping_ = true; }
  bool idle() const { return pending_ == 0; }

  uint64_t writes = 0, stale = 0, errors = 0;

 private:
  struct Slot : BlockRequest {
    LunChecker* checker;
    uint64_t block;
  };

  void SubmitNext(Slot& slot) {
    do slot.block = random_() % kBlocks;
    while (busy_[slot.block]);
    busy_[slot.block] = true;
    ++pending_;
    slot.op = random_() % 2 == 0 ? LunOp::kRead : LunOp::kWrite;
    slot.offset = slot.block * sizeof slot.buffer;
    const uint64_t number = ++number_;
    if (slot.op == LunOp::kWrite) {
      for (size_t at = 0; at < sizeof slot.buffer; at += 8) std::memcpy(slot.buffer + at, &number, 8);
    }
    lun_->Submit(&slot);
  }

  void OnDone(Slot& slot) {
    --pending_;
    busy_[slot.block] = false;
    uint64_t first;
    std::memcpy(&first, slot.buffer, 8);
    const bool mixed = std::memcmp(slot.buffer, slot.buffer + 8, sizeof slot.buffer - 8) != 0;
    if (slot.error != 0) {
      ++errors;
    } else if (slot.op == LunOp::kWrite) {
      acknowledged_[slot.block] = first;
      ++writes;
    } else if (first != acknowledged_[slot.block] || mixed) {
      ++stale;
    }
    if (!stopping_) SubmitNext(slot);
  }

  Lun* const lun_;
  Slot slots_[kDepth];
  uint64_t acknowledged_[kBlocks] = {};
  bool busy_[kBlocks] = {};
  uint64_t number_ = 0;
  int pending_ = 0;
  bool stopping_ = false;
  std::minstd_rand random_{1};
};

}  // namespace lunkeeper
