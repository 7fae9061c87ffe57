#pragma once
// Removes images and snapshots of an array in Ceph, at once if it can and else later: while a clone or a
// snapshot needs one, or somebody has it open, it stays with the mark `removed` (rbd_store.h). A thread looks
// at those marks again and again, so nothing waits for the next start.
//
// Thread-safe; one call for each name at a time. What is marked is removed by the next gateway if this one
// dies. The pool outlives it. The destructor waits for a removal in progress.

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "devices/array/tgt/ceph_pool.h"

namespace lunkeeper {

// An image's name in the pool, without the pool; and a snapshot's, or nothing.
struct RbdName {
  std::string image, snapshot;
  std::string Text() const { return snapshot.empty() ? image : image + "@" + snapshot; }
};
RbdName ParseRbdName(const std::string& text);

inline constexpr char kRemovedMark[] = "removed";
// Of a snapshot that stands only while a volume is cloned from another one; the clone's image follows.
inline constexpr char kPassing[] = "passing.";

// Whether names of this form are made here: the image of a volume, RBD's snapshot of one, or a passing one.
// A person's copy or snapshot of an image has another. `prefix`: lunkeeper.ARRAY.
bool IsMadeHere(const RbdName& name, const std::string& prefix);

class RbdRemovals {
 public:
  // `prefix`: of the array's names; `marks`: the object with the marks.
  RbdRemovals(const CephPool& pool, std::string prefix, std::string marks, absl::Duration every);
  ~RbdRemovals() { ends_ = true; }

  // From now on what is marked is removed: no row needs it.
  void Begin();
  // Marks it, and removes it now or later. OK once the mark is stored.
  absl::Status Remove(const RbdName& name);

 private:
  void RemoveLeft();
  // Whether it is gone; if not, something needs it. Half an image is removed too.
  absl::StatusOr<bool> RemoveName(const RbdName& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> RemoveSnapshot(const RbdName& name) const;
  // Of an image that waits for them: false, or an error that names one which only a person can remove.
  absl::StatusOr<bool> CheckSnapshots(const std::string& image,
                                      const std::vector<std::string>& snapshots) const;
  absl::StatusOr<bool> RemoveMarked(const std::string& text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Report(const std::string& text, const absl::Status& status);

  const CephPool& pool_;
  const std::string prefix_, marks_;
  absl::Mutex mu_;  // held while something is removed, which may take long: only the thread waits for it
  std::atomic<bool> begun_ = false, ends_ = false;
  std::map<std::string, std::string> reported_;  // why each one was not removed; used by the thread only
  Periodic removals_;                            // last: its thread uses the others
};

}  // namespace lunkeeper
