#pragma once
// Ends the I/O of a node's volumes on arrays that an operator removed. Each answer to a heartbeat names those
// arrays; what was named since the last look at the devices is enforced with the next one. Nothing is kept
// longer: an array that was added back is named no more, and its new devices are left alone. Thread-safe;
// EndIo is called from one thread, and takes as long as `fail` does.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

class RemovedArrays {
 public:
  using Fail = std::function<absl::Status(const Device& device, const std::string& why)>;

  // True: one of them was not enforced by the last EndIo.
  bool NoteNamed(const std::set<std::string>& names);
  // Fails every device on these arrays; one that cannot be failed now is tried again after the next answer.
  void EndIo(const std::vector<Device>& devices, const Fail& fail);

 private:
  absl::Mutex mutex_;
  std::set<std::string> named_ ABSL_GUARDED_BY(mutex_), enforced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
