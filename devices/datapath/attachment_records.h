#pragma once
// A small file for each volume that is attached for writing, in the folder SOCKET.attached beside the control
// socket. It is there from before the answer to the attach until all is written back.
//
// It outlives the data path on purpose. A data path that dies takes along what the kernel has cached of its
// volumes, and nothing else is left of a device that nobody had open: the writer of a raw block volume may
// have closed it without a sync, and got no error. So a detach that finds the file and no device says that
// data may be lost. It cannot know whether any are.
//
// The file holds the boot id: a machine that was started anew has lost its cache, as everybody knows.
//
// Thread-safe; no state but the files'. For one volume, one caller at a time.

#include <string>

#include "absl/status/status.h"
#include "devices/types.h"

namespace lunkeeper {

class AttachmentRecords {
 public:
  explicit AttachmentRecords(const std::string& socket_path) : folder_(socket_path + ".attached") {}

  // RESOURCE_EXHAUSTED and others: it cannot be written.
  absl::Status Write(const VolumeId& volume) const;
  // Whether there was one of this boot, of whose loss fewer than two detaches have spoken.
  bool Remove(const VolumeId& volume) const;
  // Of a volume that no data path has. DATA_LOSS: it was attached when its data path died. Said twice, since
  // an answer may be lost; OK from then on, as where there is no file.
  absl::Status TellLoss(const VolumeId& volume) const;

 private:
  std::string PathOf(const VolumeId& volume) const;

  const std::string folder_;
};

}  // namespace lunkeeper
