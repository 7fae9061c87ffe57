#pragma once
// The settings of failover from a file, which is read again every second, so that a change restarts nobody:
//
//   {"paused": false, "budgetPercent": 20, "ownerKinds": ["StatefulSet", "ReplicaSet", "Job"]}
//
// Each key stands for an option: budgetPercent for --failover-budget-percent, and probationSeconds for
// --failover-probation, with the same values. What the file leaves out is as the options say. A file with an
// error is refused as a whole, and the settings stay as they were, or at the start as the options say and
// paused: the log has the reason, and lunkeeper_failover_settings_good is 0.

#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic.h"
#include "fencing/core/settings.h"

namespace lunkeeper {

// INVALID_ARGUMENT: what is wrong. A pure function; `base` are the settings without the file.
absl::StatusOr<fencing::Settings> ParseFailoverSettings(const std::string& text,
                                                        const fencing::Settings& base);

// One thread calls the methods; IsInForce is thread-safe.
class FailoverSettingsFile {
 public:
  FailoverSettingsFile(std::string path, const fencing::Settings& base)
      : path_(std::move(path)), base_(base) {}

  // The settings to start with.
  fencing::Settings ReadFirst();
  // From now on `changed` is called, on a thread of its own, with each other content that is good.
  void StartWatching(std::function<void(const fencing::Settings&)> changed);
  // Whether the file as it is now is in force.
  bool IsInForce() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // As the file is now; or what is wrong with it.
  absl::StatusOr<fencing::Settings> ReadSettings();

  const std::string path_;
  const fencing::Settings base_;
  std::string text_;  // as last read
  mutable absl::Mutex mutex_;
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // with what is in the file now; empty: none
  std::optional<Periodic> watch_;                // last: it uses the rest
};

}  // namespace lunkeeper
