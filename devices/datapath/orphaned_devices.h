#pragma once
// The loop devices that an earlier supervisor at the same socket left in use when it died. Their I/O fails,
// but a mount or an open file keeps them, and a volume must not get a second device while its first one is
// open.
//
// Thread safety: none; the lock of SupervisedVolumes guards it. The kernel is asked each time: an orphan that
// has gone is forgotten.

#include <functional>
#include <string>
#include <vector>

#include "devices/datapath/control.pb.h"
#include "devices/datapath/loop_device.h"

namespace lunkeeper {

class OrphanedDevices {
 public:
  // To be made before the supervisor makes a device of its own: all that bear its tag now are orphans.
  explicit OrphanedDevices(std::string tag_prefix)
      : tag_prefix_(std::move(tag_prefix)), orphans_(FindLoops(tag_prefix_)) {}

  // Those still there of one volume, or of all (`volume` empty). `is_ours`: whether a loop number belongs to
  // this supervisor, which may have been given an orphan's number since.
  std::vector<datapath::Device> FindOrphans(const std::string& volume,
                                            const std::function<bool(int number)>& is_ours);

  // What the tag of this supervisor's devices begins with (loop_device.h).
  const std::string& tag_prefix() const { return tag_prefix_; }

 private:
  void ForgetGone(const std::function<bool(int number)>& is_ours);

  const std::string tag_prefix_;
  std::vector<FoundLoop> orphans_;
};

}  // namespace lunkeeper
