#pragma once
// Which of a node's devices the next heartbeats describe: a few each, so that heartbeats stay small however
// many volumes there are. What has changed goes first; then all are described in turn, for replicas that have
// just started or missed some. Thread-safe.

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/datapath/initiator.h"
#include "fencing/protocol/device_detail.h"

namespace lunkeeper {

// `is_lost`: whether a portal that was asked does not answer.
DeviceDetail DescribeDevice(const Device& device, const std::vector<std::string>& mounts,
                            const std::function<bool(const std::string& portal)>& is_lost);

class DetailRotation {
 public:
  // All that the node has now.
  void Update(DeviceDetails details);
  DeviceDetails TakeNext(size_t most);

 private:
  absl::Mutex mutex_;
  DeviceDetails details_ ABSL_GUARDED_BY(mutex_), taken_ ABSL_GUARDED_BY(mutex_);  // as each was last taken
  VolumeId last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
