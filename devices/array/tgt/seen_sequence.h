#pragma once
// Remembers, outside the pool, how many changes the catalogue has seen, so that a pool restored from an older
// copy is noticed: its catalogue has then seen fewer than are remembered.
//
// Thread-safe. Remembering never fails a call: a number that could not be written is logged, and the worst
// that follows is that a restore to that very moment goes unnoticed.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"

namespace lunkeeper {

class SeenSequence {
 public:
  // An empty path: nothing is remembered. FAILED_PRECONDITION: the file cannot be opened or holds no number.
  static absl::StatusOr<std::unique_ptr<SeenSequence>> Open(const std::string& path);

  // What was remembered when the file was opened; 0: nothing.
  uint64_t at_open() const { return at_open_; }
  void Remember(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mu_);
  // About once a second: what was remembered survives a power cut.
  void SyncToDisk();

 private:
  explicit SeenSequence(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  UniqueFd file_;
  uint64_t at_open_ = 0;
  absl::Mutex mu_;
  uint64_t remembered_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lunkeeper
