#pragma once
// Volumes and snapshots that are filled by a long copy, in a pool that cannot reflink. Their rows exist while
// they are copied (`copying`), so that a copy that a crash cut short is begun again at the next start.
//
// Thread-safe; the copies run one after another on a thread of their own. What it is made of outlives it. The
// destructor makes the running copy give up.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/copy_queue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_room.h"
#include "devices/array/tgt/volume_gates.h"

namespace lunkeeper {

class VolumeCopies {
 public:
  VolumeCopies(Catalogue& catalogue, const ImageStore& images, const PoolRoom& room, VolumeGates& gates)
      : catalogue_(catalogue), images_(images), room_(room), gates_(gates) {}

  // `from` is the source's path in the pool; `room` is held until the copy has ended. Returns at once.
  void BeginVolumeCopy(const VolumeRow& row, const std::string& from, std::shared_ptr<void> room = nullptr);
  void BeginSnapshotCopy(const SnapshotRow& row, std::shared_ptr<void> room = nullptr);
  // Takes what has a file of its own name as it is. Such a copy had ended, and an older catalogue does not
  // know it; begun anew, it would have what its source has now. Before the files are tidied.
  absl::Status EndFinished();
  // Begins every copy that the catalogue says is unfinished. Once, before the array serves.
  absl::Status ResumeCopies();
  // The end of the copy of `id`, or ABORTED with how far it is; OK when there is none.
  absl::Status WaitForCopy(const std::string& id, absl::Time deadline);

 private:
  // An image has its own name only when it is whole and its row is ready.
  absl::StatusOr<bool> IsFinished(const std::string& path) const;
  // As ImageStore::CopyImage. RESOURCE_EXHAUSTED: the pool runs full.
  absl::Status CopyWithRoom(const std::string& from, const std::string& to, uint64_t size_bytes,
                            Provisioning provisioning, const CopyQueue::Progress& progress) const;
  using RowChange = std::function<absl::Status()>;
  // Of an image with this path. Its row goes in any case, unless the program stops.
  absl::Status EndCopy(absl::Status copied, const std::string& path, const RowChange& set_ready,
                       const RowChange& delete_row, const CopyQueue::Progress& progress) const;
  // False: the program stops, and the row is there.
  bool DeleteRow(const RowChange& delete_row, const std::string& path,
                 const CopyQueue::Progress& progress) const;
  // The path of what a volume is copied from.
  absl::StatusOr<std::string> FindSource(const ClusterId& cluster, const VolumeSpec& spec);

  Catalogue& catalogue_;
  const ImageStore& images_;
  const PoolRoom& room_;
  VolumeGates& gates_;
  CopyQueue queue_;  // last: its thread uses the others
};

}  // namespace lunkeeper
