#pragma once
// The record of which arrays an operator removed: a ConfigMap in the controllers' namespace, with an entry
// for each array, by its name, that says when and by whom. The chart makes it, empty; every replica watches
// it. What is not in it is not removed. Thread-safe.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/informer.h"

namespace lunkeeper::fencing {

inline constexpr char kRemovalRecord[] = "lunkeeper-removed-arrays";

// Adds the array, or takes it out again. May be repeated. FAILED_PRECONDITION: there is no record.
absl::Status StoreRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& by, absl::Time deadline);
absl::Status EraseRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          absl::Time deadline);

// Calls `changed` with all names, on a thread of its own, after each change. Until the record could be read,
// it is not called. The destructor joins the thread; `client` outlives it.
class RemovalWatch {
 public:
  using Names = std::set<std::string>;
  RemovalWatch(kube::KubeClient& client, const std::string& space, std::function<void(const Names&)> changed);

 private:
  kube::Informer<Names> informer_;
};

}  // namespace lunkeeper::fencing
