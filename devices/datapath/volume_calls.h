#pragma once
// The calls of clients that make, grow and remove a volume's device. Each consists of steps of
// SupervisedVolumes and of system calls between them; a step that fails undoes the steps before it, and a
// call may be repeated.
//
// What each call does, by what there is of the volume. "Half made": its attach or detach got stuck halfway,
// so that it has no loop device any more, or not yet. "Lost": volume_table.h.
//
//            | none                    | half made            | attached              | attached, but lost
//   ---------+-------------------------+----------------------+-----------------------+----------------------
//   Attach   | makes it ¹ ²            | removes it, then     | answers with the      | like attached
//            |                         | makes it ¹           | device ³              |
//   Detach   | waits until no orphan   | removes it           | writes back, then     | removes it
//            | is left, then OK ⁵      |                      | removes it ⁴          |
//   Resize   | NOT_FOUND               | FAILED_PRECONDITION  | asks the worker,      | FAILED_PRECONDITION
//            |                         |                      | grows the device      |
//   Fail     | OK                      | remembers it, and tells each worker; OK when repeated
//   Limits   | OK                      | takes on newer ones: each worker reads them in the shared memory
//   List,    | orphans                 | not shown            | shown                 | shown as FAILED
//   Find     |                         |                      |                       |
//   Upgrade  | replaces the worker     | FAILED_PRECONDITION where the kernel cannot resend, else replaces it
//   Stop     | ends the data path      | FAILED_PRECONDITION
//
//   ¹ UNAVAILABLE once the data path has been asked to end.
//   ² FAILED_PRECONDITION while an orphan of the volume is open.
//   ³ FAILED_PRECONDITION if the request names another target.
//   ⁴ FAILED_PRECONDITION while the device is open. UNAVAILABLE while the target is away. DATA_LOSS where
//     writing back failed, or was cut off; said twice, since an answer may be lost. A volume that has failed
//     for good is removed, and the log says what is lost.
//   ⁵ DATA_LOSS where its data path died with it, said twice (attachment_records.h). An attach passes over
//     that, and the log has it.
// Attach, Detach and Resize wait for another call that works on the volume; the others never do. Where the
// data path ends, waiting calls answer UNAVAILABLE.
//
// Thread-safe: no state but what SupervisedVolumes keeps, which must outlive this.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/attachment_records.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/supervised_volumes.h"
#include "devices/types.h"

namespace lunkeeper {

class VolumeCalls {
 public:
  // `may_resend`: false treats the kernel as one that cannot hand a dead worker's requests to its successor.
  VolumeCalls(SupervisedVolumes& volumes, AttachmentRecords records, bool may_resend)
      : volumes_(volumes), records_(std::move(records)), may_resend_(may_resend) {}

  absl::StatusOr<datapath::Device> AttachVolume(const datapath::Attach& request, absl::Time deadline);
  // `written_back`: called once nothing is lost any more, whatever becomes of this process.
  absl::Status DetachVolume(const VolumeId& id, absl::Time deadline,
                            const std::function<void()>& written_back);
  absl::StatusOr<datapath::Device> ResizeVolume(const VolumeId& id, absl::Time deadline);

 private:
  absl::Status CheckNoOrphan(const VolumeId& id);
  absl::StatusOr<datapath::Device> AnswerAttached(SupervisedVolume& volume, const datapath::Attach& request);
  absl::StatusOr<datapath::Device> MakeVolume(const datapath::Attach& request, absl::Time deadline);
  absl::Status MakeDevice(SupervisedVolume& volume, absl::Time deadline);
  absl::Status RecordAttachment(const SupervisedVolume& volume);
  absl::Status TellCutOff(SupervisedVolume& volume);
  absl::Status TellLossAgain(SupervisedVolume& volume);
  absl::Status TakeDown(SupervisedVolume& volume, absl::Time deadline,
                        const std::function<void()>& written_back);
  absl::Status RemoveDevice(SupervisedVolume& volume, absl::Time deadline,
                            const std::function<void()>& written_back);
  absl::Status SealDevice(SupervisedVolume& volume, absl::Time deadline);
  absl::Status WriteBack(SupervisedVolume& volume, absl::Time deadline);
  absl::Status SealFailedDevice(const SupervisedVolume& volume, absl::Time deadline);
  // Says in the log what a volume that has failed for good takes along: of `cached_bytes` (nullopt: not
  // known) in the device's cache, and of acknowledged writes, nothing reaches the storage any more.
  void LogLostData(const SupervisedVolume& volume, std::optional<uint64_t> cached_bytes);
  absl::StatusOr<LoopDevice> SealLoopOf(SupervisedVolume& volume, absl::Time deadline);
  absl::Status GrowDevice(SupervisedVolume& volume, absl::Time deadline);

  SupervisedVolumes& volumes_;
  const AttachmentRecords records_;
  const bool may_resend_;
};

}  // namespace lunkeeper
