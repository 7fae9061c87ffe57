#pragma once
// What a volume was made for, and what may be done with it because of that: CSI's volume capabilities in the
// array's words. The array keeps them with the volume and refuses all else, so that a node cannot write to a
// volume of readers by asking for it. Plain values; nothing fails.

#include <cstdint>
#include <string>

#include "devices/grant.h"

namespace lunkeeper {

// "exclusive", "read-only", "shared-write".
const char* ToText(Access access);

// A set of uses, each of them who uses the volume (one node, many readers, many writers, in the words of
// Access) and in which mode. Empty: not known; nothing is refused.
class VolumeUses {
 public:
  VolumeUses() = default;
  // As stored: bit Access for a file system, three bits higher for a block device. Others are dropped.
  explicit VolumeUses(uint64_t bits) : bits_(bits & 0x3f) {}
  uint64_t bits() const { return bits_; }
  bool empty() const { return bits_ == 0; }

  void Add(Access access, VolumeMode mode);
  // Whether these uses, or narrower ones, were among what it was made for: a reader is narrower than a
  // writer, and one node is narrower than several.
  bool Allow(Access access, VolumeMode mode) const;
  bool Contain(const VolumeUses& others) const { return empty() || (others.bits_ & ~bits_) == 0; }
  // Whether several nodes may have grants at the same time.
  bool ForManyNodes() const;
  // For people: "exclusive filesystem, read-only filesystem".
  std::string ToText() const;

  friend bool operator==(const VolumeUses&, const VolumeUses&) = default;

 private:
  uint64_t bits_ = 0;
};

// Whether a node may have `asked` beside another node's `held` on a volume made for `uses`. Readers come in
// beside readers and shared writers; a shared writer beside shared writers only, since a reader that was
// there first relies on blocks that do not change.
bool CanJoin(Access asked, Access held, const VolumeUses& uses);

}  // namespace lunkeeper
