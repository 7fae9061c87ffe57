#pragma once
// Questions to the store by a call that is inside a volume's gate. A release, and so a fence, needs the gate,
// and the store may be silent for as long as it takes: so the call gives up once a grant of the volume is to
// be released.
//
// Thread-safe. A question goes on when nobody waits for it any more, and the next call for the volume waits
// for its answer. The destructor waits for questions that were begun. What it is made of outlives it.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

class GatedQuestions {
 public:
  GatedQuestions(Catalogue& catalogue, const ImageStore& images) : catalogue_(catalogue), images_(images) {}

  // As ImageStore::BackingOf, of the grant's volume. UNAVAILABLE, too: it was given up.
  absl::StatusOr<LunBacking> BackingOf(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Question {
    std::optional<absl::StatusOr<LunBacking>> answer;  // with mu_
    const std::chrono::steady_clock::time_point asked = std::chrono::steady_clock::now();
  };
  struct Asked {
    std::shared_ptr<Question> question;
    std::jthread thread;
  };
  std::shared_ptr<Question> Ask(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<absl::StatusOr<LunBacking>> AwaitAnswer(const Question& question, absl::Duration within)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndAnswered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsReleaseDue(const GrantRow& grant) const;

  Catalogue& catalogue_;
  const ImageStore& images_;
  absl::Mutex mu_;
  std::map<std::string, Asked> asked_ ABSL_GUARDED_BY(mu_);  // by path
};

}  // namespace lunkeeper
