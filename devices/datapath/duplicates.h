#pragma once
// Duplicates of a supervisor's descriptors, kept by a process that outlives it (duplicate_store.h), so that
// a supervisor that is killed costs its volumes no I/O error: the next one finds them there.
//
// A parcel, as in inheritance.h, is a socket in whose buffer the volumes wait. The store has its reading
// end and does nothing with it. The supervisor has both, and so changes what is kept without asking anybody,
// even a store that hangs: the new edition goes into the one parcel, and then the old one is taken out of
// the other. Whenever it is killed, one of the two is whole.
//
// Kept is what the next supervisor can go on with: volumes with a device whose requests the kernel sends
// again (Linux 6.9), and that have not failed by a supervisor's doing. The others, fenced ones among them,
// end with their supervisor, as all do where nobody keeps duplicates.
//
// So does a volume for whose I/O a child of the supervisor may wait: in a detach or a growth, or after one
// that left it behind. That child cannot be killed until its I/O ends, and a container does not end before
// all its processes have, so the next supervisor would not start. What is cached of the volume is lost, and a
// record
// (`cut_off`) has the next supervisor say so. Not thread-safe.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/datapath/inheritance.h"

namespace lunkeeper {

constexpr size_t kParcels = 2;

class Duplicates {
 public:
  // `memory` outlives this.
  explicit Duplicates(const SharedMemory& memory) : memory_(memory) {}
  ~Duplicates() { Withdraw(); }
  Duplicates(const Duplicates&) = delete;
  Duplicates& operator=(const Duplicates&) = delete;

  // From now on there is a store, which is to be given these descriptors.
  absl::StatusOr<std::vector<int>> Offer(const VolumeTable::Volumes& volumes, uint64_t next_tag);
  // To be called after each change of a volume. Waits for nobody. Where it fails nothing is kept, the log
  // says so, and Refresh tries it again.
  void Update(const VolumeTable::Volumes& volumes, uint64_t next_tag);
  // To be called once a second: children that wait come and go, and a predecessor of an older version voids
  // all attachments when it ends, after this supervisor has told the store of them.
  void Refresh(const VolumeTable::Volumes& volumes, uint64_t next_tag);
  // Nothing is kept any more, even if the store hangs.
  void Withdraw();

 private:
  struct Parcel {
    UniqueFd in, out;
  };
  absl::Status WriteEdition(const VolumeTable::Volumes& volumes, uint64_t next_tag);

  const SharedMemory& memory_;
  std::array<Parcel, kParcels> parcels_;  // without descriptors: there is no store
  uint64_t edition_ = 0;
  bool failed_ = false;       // the last one could not be written
  size_t waiting_ = 0;        // volumes with a waiting child, as of the last one
  uint64_t attachments_ = 0;  // the sum of the volumes', likewise
};

// Takes everything out of a parcel.
void EmptyParcel(int parcel);
// Whether volumes are in a parcel. It stays as it is.
bool HoldsVolumes(int parcel);

// What two parcels keep. They stay as they are, so that it is there again for a supervisor that comes after
// this one. NOT_FOUND: nothing. FAILED_PRECONDITION: it is of another version of the data path.
absl::StatusOr<VolumesState> ReadDuplicates(const std::vector<UniqueFd>& parcels);

}  // namespace lunkeeper
