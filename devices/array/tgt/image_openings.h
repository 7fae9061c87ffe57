#pragma once
// Which images a tgtd opens just now, and which ones it may hang on. tgtd opens images on the one thread
// that serves everybody, so an image that falls silent just then, after the store has answered for it, keeps
// all volumes of that tgtd. Such a tgtd is ended, and the next one does not open the image for a while, which
// is longer each time.
//
//   BeginOpening --> tgtd answers: EndOpening --> forgotten
//      |                 no answer in time: EndOpening, and then
//      |                     tgtd answers again: NoteAnswer --> forgotten
//      |                     tgtd hangs: BlameImages --+
//      +<------------- UNAVAILABLE for a while --------+
//
// Of several at a time all are blamed. Only of images that may be silent alone (LunBacking). Thread-safe.

#include <chrono>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/types.h"

namespace lunkeeper {

class ImageOpenings {
 public:
  // UNAVAILABLE: tgtd hung with it, and it is too early to try again.
  absl::Status BeginOpening(Generation grant) ABSL_LOCKS_EXCLUDED(mu_);
  // `told`: tgtd's answer; UNAVAILABLE: it has not come.
  void EndOpening(Generation grant, const absl::Status& told) ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd has answered something just now.
  void NoteAnswer() ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd does not answer. True: it may be for an image, so it is to be ended.
  bool BlameImages() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Blame {
    absl::Duration pause;  // the next one
    SteadyTime until;
  };
  absl::Mutex mu_;
  std::map<Generation, bool> open_ ABSL_GUARDED_BY(mu_);  // not answered; whether somebody still waits
  std::map<Generation, Blame> blamed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
