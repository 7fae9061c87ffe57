#include "devices/array/volume_uses.h"

#include <catch2/catch.hpp>

#include "devices/array/volume_store.h"

namespace lunkeeper {
namespace {

constexpr Access kEach[] = {Access::kExclusive, Access::kReadOnly, Access::kSharedWrite};

VolumeUses Uses(Access access, VolumeMode mode = VolumeMode::kFilesystem) {
  VolumeUses uses;
  uses.Add(access, mode);
  return uses;
}

}  // namespace

TEST_CASE("a volume may be used as it was made for, and in narrower ways") {
  struct Row {
    Access made_for;
    bool exclusive, read_only, shared_write;
  };
  const Row rows[] = {{Access::kExclusive, true, true, false},
                      {Access::kReadOnly, false, true, false},
                      {Access::kSharedWrite, true, true, true}};
  for (const Row& row : rows) {
    CAPTURE(ToText(row.made_for));
    for (const VolumeMode mode : {VolumeMode::kFilesystem, VolumeMode::kBlock, VolumeMode::kAny}) {
      const VolumeUses uses = Uses(row.made_for, VolumeMode::kFilesystem);
      const bool fits = mode != VolumeMode::kBlock;
      CHECK(uses.Allow(Access::kExclusive, mode) == (row.exclusive && fits));
      CHECK(uses.Allow(Access::kReadOnly, mode) == (row.read_only && fits));
      CHECK(uses.Allow(Access::kSharedWrite, mode) == (row.shared_write && fits));
    }
  }
}

TEST_CASE("a use goes with its own mode only") {
  VolumeUses uses = Uses(Access::kReadOnly, VolumeMode::kFilesystem);
  uses.Add(Access::kSharedWrite, VolumeMode::kBlock);
  CHECK(uses.Allow(Access::kSharedWrite, VolumeMode::kBlock));
  CHECK_FALSE(uses.Allow(Access::kSharedWrite, VolumeMode::kFilesystem));
  CHECK_FALSE(uses.Allow(Access::kExclusive, VolumeMode::kFilesystem));
  CHECK(uses.ToText() == "read-only filesystem, shared-write block");
}

TEST_CASE("what is not known refuses nothing") {
  for (const Access access : kEach) CHECK(VolumeUses().Allow(access, VolumeMode::kBlock));
  CHECK(VolumeUses().ForManyNodes());
  CHECK(VolumeUses().Contain(Uses(Access::kSharedWrite)));
  CHECK(VolumeUses(0xff00).empty());
}

TEST_CASE("no writer comes in beside a reader, and nobody beside the one node of a volume for one node") {
  VolumeUses many = Uses(Access::kReadOnly);
  many.Add(Access::kSharedWrite, VolumeMode::kFilesystem);
  for (const VolumeUses& uses : {many, VolumeUses()}) {
    for (const Access held : kEach) {
      CHECK_FALSE(CanJoin(Access::kExclusive, held, uses));
      CHECK_FALSE(CanJoin(held, Access::kExclusive, uses));
    }
    CHECK(CanJoin(Access::kReadOnly, Access::kReadOnly, uses));
    CHECK(CanJoin(Access::kSharedWrite, Access::kSharedWrite, uses));
    CHECK(CanJoin(Access::kReadOnly, Access::kSharedWrite, uses));
    CHECK_FALSE(CanJoin(Access::kSharedWrite, Access::kReadOnly, uses));
  }
  CHECK_FALSE(CanJoin(Access::kReadOnly, Access::kReadOnly, Uses(Access::kExclusive)));
}

TEST_CASE("a repeated request means the same volume if it asks for no more than that was made for") {
  VolumeSpec there{.name = "v", .size_bytes = 1, .source_snapshot = {}, .source_volume = {}};
  VolumeSpec asked = there;
  asked.uses = Uses(Access::kExclusive);
  asked.fs_type = "xfs";
  CHECK(IsMadeAs(there, asked));  // of the one that is there nothing is known
  there.uses = asked.uses;
  there.uses.Add(Access::kReadOnly, VolumeMode::kFilesystem);
  there.fs_type = "xfs";
  asked.size_bytes = 2;
  CHECK(IsMadeAs(there, asked));
  asked.uses.Add(Access::kExclusive, VolumeMode::kBlock);
  CHECK_FALSE(IsMadeAs(there, asked));
  asked.uses = VolumeUses();
  CHECK(IsMadeAs(there, asked));
  asked.fs_type = "ext4";
  CHECK_FALSE(IsMadeAs(there, asked));
  asked.fs_type = "";
  CHECK(IsMadeAs(there, asked));
  asked.durability = Durability::kSync;
  CHECK_FALSE(IsMadeAs(there, asked));
  asked.claim = "db/data-1";
  std::swap(asked.durability, there.durability);  // it has been modified
  CHECK(IsMadeAs(there, asked));
}

}  // namespace lunkeeper
