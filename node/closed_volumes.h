#pragma once
// Which volumes have a file system that met an error and closed itself: an ext4 that became read-only, or an
// XFS that shut itself down. The first is in the mount table. The second is not, so XFS is asked, one mount
// with each call in turn: a call costs little, however many there are. One thread uses it; nothing fails.

#include <map>
#include <set>
#include <vector>

#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"

namespace lunkeeper {

// The mount was made for writing, and its file system has closed itself to writes since.
inline bool HasClosedItself(const Mount& mount) { return mount.file_system_read_only && !mount.read_only; }

// The same of an XFS, which is asked, twice at most. False also where it does not answer within a moment.
bool HasShutDown(const Mount& mount, Filesystem& filesystem);

class ClosedVolumes {
 public:
  // Both outlive it.
  ClosedVolumes(Mounter& mounter, Filesystem& filesystem) : mounter_(mounter), filesystem_(filesystem) {}

  // Of these devices. None where the mount table cannot be read. Returns within a moment, also where a file
  // system does not answer.
  std::vector<VolumeId> ListVolumes(const std::vector<Device>& devices);

 private:
  void AskNext(const std::vector<Mount>& mounts, const std::set<dev_t>& healthy);

  Mounter& mounter_;
  Filesystem& filesystem_;
  std::map<dev_t, int> failures_;  // in a row, where the last answer was one
  dev_t asked_last_ = 0;
};

}  // namespace lunkeeper
