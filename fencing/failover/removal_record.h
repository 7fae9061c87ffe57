#pragma once
// The record of which arrays an operator removed: a ConfigMap in the controllers' namespace, with an entry
// for each array, by its name, that says by whom. The chart makes it, empty. What is not in it is not
// removed.
//
// Every replica reads it each second, with a deadline, and not by a watch: a watch that has fallen silent
// looks alive, and who goes by an old record ends I/O on an array that was added back. A record that is gone
// says nothing: what was read before stays removed, and a replica that has read none uses no array. Nor does
// one say that an array was added back, if it was made anew or written over as a whole.
// Thread-safe.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "devices/array/remaining_arrays.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

inline constexpr char kRemovalRecord[] = "lunkeeper-removed-arrays";

// As it is stored now. FAILED_PRECONDITION: there is no record.
absl::StatusOr<RemovedNames> ReadRemovals(kube::KubeClient& client, const std::string& space,
                                          const kube::Limits& limits);

// Each may be repeated. FAILED_PRECONDITION: there is no record. After UNAVAILABLE and DEADLINE_EXCEEDED it
// may be done or not.
absl::Status StoreRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& by, absl::Time deadline);
// The array stays removed, but no replica that reads this tells a node so. Returns the record's version.
absl::StatusOr<std::string> StoreAddition(kube::KubeClient& client, const std::string& space,
                                          const std::string& array, absl::Time deadline);
// ABORTED: the record is not of this version any more.
absl::Status EraseRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& version, absl::Time deadline);

// Tells `arrays` what the record says, on a thread of its own. The destructor joins the thread; what it is
// given outlives it.
class RemovalWatch {
 public:
  RemovalWatch(kube::KubeClient& client, std::string space, RemainingArrays& arrays);
  ~RemovalWatch() { stopping_.request_stop(); }

 private:
  void ReadRecord();
  void LogNews(const std::string& now, bool is_good);

  kube::KubeClient& client_;
  const std::string space_;
  RemainingArrays& arrays_;
  std::string last_news_;  // used by the thread only
  std::stop_source stopping_;
  Periodic reads_;  // last: its thread uses the other members
};

}  // namespace lunkeeper::fencing
