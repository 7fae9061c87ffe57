#pragma once
// Which images a tgtd opens just now, and which ones it may hang on. tgtd opens images on the one thread
// that serves everybody, so an image that falls silent just then, after the store has answered for it, keeps
// all volumes of that tgtd. Such a tgtd is ended, and the next one does not open the image for a while, which
// is longer each time. It ends early once the store, which was silent about the image, has answered for it at
// once for some seconds. That the store answers is not enough: it did so before tgtd hung.
//
//   BeginOpening --> tgtd answers: EndOpening --> forgotten
//      |                 no answer in time: EndOpening, and then
//      |                     tgtd answers again: NoteAnswer --> forgotten
//      |                     tgtd hangs: BlameImage ---+
//      +<------------- UNAVAILABLE for a while --------+
//
// One image after another, so that no queue of slow ones looks like one that is silent: where all of Ceph is
// slow, tgtd is not ended. Only of images that may be silent alone (LunBacking). Thread-safe.
//
// An agent that ends meanwhile leaves a mark for the next one, which finds a tgtd that hangs and could not
// know why. The mark goes with tgtd's first answer. What cannot be written there is not remembered.

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/types.h"

namespace lunkeeper {

class ImageOpenings {
 public:
  // `mark`: the file for the next agent; empty: none. What an agent before this one left there counts as
  // being opened for long.
  explicit ImageOpenings(std::string mark = "");
  // Before anything is asked for an opening that BeginOpening would refuse. UNAVAILABLE: tgtd hung with it.
  absl::Status CheckNotBlamed(Generation grant) const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the one before. UNAVAILABLE: tgtd hung with this image, and it is too early to try again; or
  // the one before takes long, and tgtd has not answered since; or many wait.
  absl::Status BeginOpening(Generation grant) ABSL_LOCKS_EXCLUDED(mu_);
  // The same before tgtd closes an image, which it may hang on as well: whatever it has hung on before.
  absl::Status BeginClosing(Generation grant) ABSL_LOCKS_EXCLUDED(mu_);
  // `told`: tgtd's answer; UNAVAILABLE: it has not come.
  void EndOpening(Generation grant, const absl::Status& told) ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd has answered something just now.
  void NoteAnswer() ABSL_LOCKS_EXCLUDED(mu_);
  // The store was asked for the image, and has answered.
  void NoteLook(Generation grant, std::chrono::steady_clock::time_point asked,
                std::chrono::steady_clock::time_point answered) ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd does not answer. True: it has been opening one image for long, so it is to be ended.
  bool BlameImage() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Opening {
    Generation grant;
    SteadyTime begun;
    bool is_waited_for = true;
  };
  struct Blame {
    absl::Duration pause;  // the next one
    SteadyTime until;
    bool was_silent = false;               // the store, since then
    std::optional<SteadyTime> well_since;  // it answers at once
  };
  bool IsNoneWaitedFor() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return !opening_ || !opening_->is_waited_for;
  }

  absl::Status BlameOf(Generation grant) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status TakeTurn(Generation grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetOpening() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string mark_;
  mutable SteadyMutex mu_;
  std::optional<Opening> opening_ ABSL_GUARDED_BY(mu_);  // not answered
  bool marked_ ABSL_GUARDED_BY(mu_) = false;             // the file may be there
  std::map<Generation, Blame> blamed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
