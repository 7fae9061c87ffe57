#pragma once
// Brings a node's devices to the limits of their volumes. The thread that learns of limits reports them here,
// again and again; the thread that lists the devices applies them. Thread-safe. What cannot be set now, as
// the data path does not answer or is too old, is tried again each time, and logged once. A data path that
// does not answer is asked once each time, and not for each volume.

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

class LimitSetter {
 public:
  using Set = std::function<absl::Status(const VolumeId&, const VolumeLimits&)>;
  // `set`: as Initiator::SetLimits. Empty: nothing is ever applied.
  explicit LimitSetter(Set set) : set_(std::move(set)) {}

  // True: some of them were not known.
  bool Report(const LimitsByVolume& limits) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets the limits of devices that have older ones. What is known of volumes without a device is forgotten:
  // an attach brings limits of its own.
  void Apply(const std::vector<Device>& devices) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status SetLimits(const Device& device, const VolumeLimits& limits);

  const Set set_;
  absl::Mutex mutex_;
  LimitsByVolume known_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_;  // the last that was logged; of the thread that applies
};

}  // namespace lunkeeper
