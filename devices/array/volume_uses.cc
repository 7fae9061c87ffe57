// Words for people, in errors and in `lunkeeper status`. A publish_context, which orchestrators store, has a
// list of its own (publish_context.cc), so that these words may change.
#include "devices/array/volume_uses.h"

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

constexpr Access kAccesses[] = {Access::kExclusive, Access::kReadOnly, Access::kSharedWrite};

uint64_t BitsOf(Access access, VolumeMode mode) {
  const uint64_t bit = uint64_t{1} << static_cast<int>(access);
  if (mode == VolumeMode::kFilesystem) return bit;
  return mode == VolumeMode::kBlock ? bit << 3 : bit | bit << 3;
}

}  // namespace

const char* ToText(Access access) {
  // Without a default, so that the compiler names this place when a kind of access is added.
  switch (access) {
    case Access::kExclusive:
      return "exclusive";
    case Access::kReadOnly:
      return "read-only";
    case Access::kSharedWrite:
      return "shared-write";
  }
  return "?";
}

void VolumeUses::Add(Access access, VolumeMode mode) { bits_ |= BitsOf(access, mode); }

bool VolumeUses::Allow(Access access, VolumeMode mode) const {
  if (empty()) return true;
  uint64_t enough = BitsOf(access, mode);
  if (access != Access::kSharedWrite) enough |= BitsOf(Access::kSharedWrite, mode);
  if (access == Access::kReadOnly) enough |= BitsOf(Access::kExclusive, mode);
  return (bits_ & enough) != 0;
}

bool VolumeUses::ForManyNodes() const {
  const uint64_t many =
      BitsOf(Access::kReadOnly, VolumeMode::kAny) | BitsOf(Access::kSharedWrite, VolumeMode::kAny);
  return empty() || (bits_ & many) != 0;
}

std::string VolumeUses::ToText() const {
  std::string text;
  for (const VolumeMode mode : {VolumeMode::kFilesystem, VolumeMode::kBlock}) {
    for (const Access access : kAccesses) {
      if ((bits_ & BitsOf(access, mode)) == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", lunkeeper::ToText(access),
                      mode == VolumeMode::kBlock ? " block" : " filesystem");
    }
  }
  return text.empty() ? "not known" : text;
}

bool CanJoin(Access asked, Access held, const VolumeUses& uses) {
  if (asked == Access::kExclusive || held == Access::kExclusive) return false;
  if (asked == Access::kSharedWrite && held == Access::kReadOnly) return false;
  return uses.ForManyNodes();
}

}  // namespace lunkeeper
