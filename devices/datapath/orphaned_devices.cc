// What is known of an orphan comes from the kernel alone: /sys/block, and the tag in its loop device's name
// field. The list is made once, when the supervisor starts; it can only shrink, since a supervisor that lives
// leaves none.

#include "devices/datapath/orphaned_devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/steady_deadline.h"
#include "devices/datapath/loop_tag.h"

namespace lunkeeper {
namespace {

// The kernel removes a device without a supervisor at its last close, a moment after an unmount.
constexpr absl::Duration kOrphanLingers = absl::Seconds(2);
constexpr absl::Duration kOrphanPoll = absl::Milliseconds(20);

}  // namespace

void OrphanedDevices::ForgetGone(const std::function<bool(int number)>& is_ours) {
  const std::vector<FoundLoop> found = FindLoops(tag_prefix_, is_ours);
  std::erase_if(orphans_, [&](const FoundLoop& orphan) {
    return std::find(found.begin(), found.end(), orphan) == found.end();
  });
}

std::vector<datapath::Device> OrphanedDevices::FindOrphans(const std::string& volume,
                                                           const std::function<bool(int number)>& is_ours) {
  std::vector<datapath::Device> devices;
  if (orphans_.empty()) return devices;  // the usual case: spares the walk through /sys/block
  ForgetGone(is_ours);
  for (const FoundLoop& orphan : orphans_) {
    // Tags are compared, not names: a long name stands in its tag as a hash.
    if (!volume.empty() && LoopTag(tag_prefix_, volume) != tag_prefix_ + orphan.name) continue;
    datapath::Device& device = devices.emplace_back();
    device.set_volume(volume.empty() ? orphan.name : volume);
    device.set_path(absl::StrCat("/dev/loop", orphan.number));
    device.set_size_bytes(orphan.size_bytes);
    device.set_read_only(orphan.read_only);
    device.set_health(datapath::Device::FAILED);
    device.set_reason("the data path that served it has died: unmount it");
  }
  return devices;
}

std::vector<datapath::Device> FindOrphans(const std::string& socket_path, const std::string& volume) {
  const auto none = [](int) { return false; };
  return OrphanedDevices(LoopTagPrefix(socket_path), none).FindOrphans(volume, none);
}

absl::Status AwaitNoOrphan(const VolumeId& volume, absl::Time deadline,
                           const std::function<std::vector<datapath::Device>()>& find) {
  const SteadyDeadline end(std::min(deadline, absl::Now() + kOrphanLingers));
  while (true) {
    const std::vector<datapath::Device> orphans = find();
    if (orphans.empty()) return absl::OkStatus();
    if (end.IsOver()) {
      return absl::FailedPreconditionError(absl::StrCat("volume ", volume.value(), ": ", orphans[0].path(),
                                                        " is still open (mounted, or held by a process)"));
    }
    absl::SleepFor(kOrphanPoll);
  }
}

}  // namespace lunkeeper
