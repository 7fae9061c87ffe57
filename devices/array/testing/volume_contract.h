#pragma once
// What VolumeStore promises, asked of any array: the same for the one in memory, the one over the network and
// the real ones. Each function makes objects of its own, leaves none, and uses one thread.

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "devices/array/array.h"
#include "devices/array/testing/contract_volume.h"

namespace lunkeeper::testing {

// A volume is made once for its name, grows, never shrinks, and goes.
inline void CheckVolumeLife(Array& array) {
  const Volume made = MakeContractVolume(array, ContractSpec("lives"));
  CHECK(made.spec.size_bytes == 4 << 20);
  CHECK_FALSE(made.serial.empty());
  CHECK(array.volumes().GetVolume(made.id)->serial == made.serial);
  CHECK(MakeContractVolume(array, ContractSpec("lives")).id == made.id);
  VolumeSpec durable = ContractSpec("lives");
  durable.durability = Durability::kSync;
  CHECK(absl::IsAlreadyExists(array.volumes().CreateVolume(durable).status()));

  CHECK(array.volumes().ExpandVolume(made.id, 7 << 20)->spec.size_bytes == 7 << 20);
  CHECK(array.volumes().ExpandVolume(made.id, 5 << 20)->spec.size_bytes == 7 << 20);
  CHECK(array.volumes().GetVolume(made.id)->spec.size_bytes == 7 << 20);
  VolumeSpec resized = ContractSpec("lives");  // repeated by the size that it had, or by the one it has
  for (const uint64_t mib : {4, 7}) {
    resized.size_bytes = mib << 20;
    CHECK(MakeContractVolume(array, resized).id == made.id);
  }
  resized.size_bytes = 6 << 20;
  CHECK(absl::IsAlreadyExists(array.volumes().CreateVolume(resized).status()));
  CHECK(array.volumes().DeleteVolume(made.id).ok());
  CHECK(array.volumes().DeleteVolume(made.id).ok());
  CHECK(absl::IsNotFound(array.volumes().GetVolume(made.id).status()));
  CHECK(absl::IsNotFound(array.volumes().ExpandVolume(made.id, 9 << 20).status()));
  const Volume next = MakeContractVolume(array, ContractSpec("lives"));
  CHECK(next.id != made.id);
  CHECK(array.volumes().DeleteVolume(next.id).ok());
}

// In pages, each once, in order of id. The array has no other volumes and snapshots.
inline void CheckPages(Array& array) {
  std::set<VolumeId> made, listed;
  for (int i = 0; i < 5; ++i)
    made.insert(MakeContractVolume(array, ContractSpec("page " + std::to_string(i))).id);
  std::string token;
  do {
    const auto page = array.volumes().ListVolumes(token, 2);
    REQUIRE(page.ok());
    CHECK(page->items.size() <= 2);
    for (const Volume& volume : page->items) {
      CHECK((listed.empty() || *listed.rbegin() < volume.id));
      listed.insert(volume.id);
    }
    token = page->next_token;
  } while (!token.empty());
  CHECK(listed == made);
  CHECK(array.volumes().ListVolumes("", 5)->next_token.empty());
  CHECK(array.volumes().ListVolumes("", 0)->items.size() == 5);
  CHECK(absl::IsAborted(array.volumes().ListVolumes("nonsense", 2).status()));
  CHECK(absl::IsAborted(array.volumes().ListSnapshots({}, "nonsense", 2).status()));
  for (const VolumeId& id : made) CHECK(array.volumes().DeleteVolume(id).ok());
  CHECK(array.volumes().ListVolumes("", 0)->items.empty());
}

// Of a volume that no node has, since not every array copies one that is in use.
inline void CheckCopies(Array& array) {
  const Volume source = MakeContractVolume(array, ContractSpec("source"));
  const Volume other = MakeContractVolume(array, ContractSpec("other"));
  const auto snapshot = array.volumes().CreateSnapshot("copy", source.id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(snapshot->ready);
  CHECK(snapshot->size_bytes == 4 << 20);
  CHECK(array.volumes().CreateSnapshot("copy", source.id)->id == snapshot->id);
  CHECK(absl::IsAlreadyExists(array.volumes().CreateSnapshot("copy", other.id).status()));
  REQUIRE(array.volumes().ExpandVolume(source.id, 6 << 20).ok());
  CHECK(array.volumes().GetSnapshot(snapshot->id)->size_bytes == 4 << 20);

  VolumeSpec clone = ContractSpec("clone");
  clone.source_volume = source.id;
  CHECK(absl::IsOutOfRange(array.volumes().CreateVolume(clone).status()));
  clone.size_bytes = 6 << 20;
  const Volume cloned = MakeContractVolume(array, clone);
  CHECK(cloned.spec.source_volume == source.id);
  REQUIRE(array.volumes().DeleteVolume(source.id).ok());
  CHECK(array.volumes().ListSnapshots(source.id, "", 0)->items.size() == 1);
  CHECK(array.volumes().ListSnapshots(other.id, "", 0)->items.empty());
  VolumeSpec restored = ContractSpec("restored");
  restored.source_snapshot = snapshot->id;
  restored.size_bytes = 5 << 20;
  const Volume from_snapshot = MakeContractVolume(array, restored);
  CHECK(from_snapshot.spec.size_bytes == 5 << 20);

  clone.name = "late";
  CHECK(absl::IsNotFound(array.volumes().CreateVolume(clone).status()));
  CHECK(absl::IsNotFound(array.volumes().CreateSnapshot("late", source.id).status()));
  CHECK(array.volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(array.volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(absl::IsNotFound(array.volumes().GetSnapshot(snapshot->id).status()));
  for (const Volume& volume : {other, cloned, from_snapshot})
    CHECK(array.volumes().DeleteVolume(volume.id).ok());
}

// The array has no volumes and snapshots.
inline void CheckVolumes(Array& array) {
  CheckVolumeLife(array);
  CheckPages(array);
  CheckCopies(array);
}

}  // namespace lunkeeper::testing
