#pragma once
// The record of which arrays an operator removed: a ConfigMap in the controllers' namespace, with an entry
// for each array, by its name, that says when and by whom. The chart makes it, empty; every replica watches
// it. What is not in it is not removed. Thread-safe.

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "devices/array/remaining_arrays.h"
#include "fencing/kube/informer.h"

namespace lunkeeper::fencing {

inline constexpr char kRemovalRecord[] = "lunkeeper-removed-arrays";

// Adds the array, or takes it out again. May be repeated. FAILED_PRECONDITION: there is no record.
absl::Status StoreRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& by, absl::Time deadline);
absl::Status EraseRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          absl::Time deadline);

// Tells `arrays` what the record says, on a thread of its own, and whether it can be read now. The destructor
// joins the thread; what it is given outlives it.
class RemovalWatch {
 public:
  using Names = std::set<std::string>;
  RemovalWatch(kube::KubeClient& client, const std::string& space, RemainingArrays& arrays);

 private:
  kube::Informer<Names> informer_;
};

}  // namespace lunkeeper::fencing
