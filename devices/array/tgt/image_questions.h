#pragma once
// Questions to the store about many images at once, on threads of their own. An image that does not answer
// holds up no other one: on Ceph, one whose placement group is down.
//
//   ImageQuestions<LunBacking> questions;
//   for (…) questions.Ask(name, [&] { return images.BackingOf(path); });
//   while (auto answered = questions.TakeAnswer(limit)) …   // in the order in which answers come
//
// Thread-safe. A question without an answer goes on, also when nobody waits any more. Its answer then goes to
// the next caller of TakeAnswer, which tells by the name what it is of. The destructor waits for questions
// that were begun, so it may have to wait for the store.

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"

namespace lunkeeper {

// What an image does not answer for so long, while no other one answers either, is not waited for where the
// others' volumes are.
constexpr absl::Duration kStoreAnswers = absl::Seconds(3);

template <typename Answer>
class ImageQuestions {
 public:
  using Question = std::function<absl::StatusOr<Answer>()>;
  struct Answered {
    std::string name;
    absl::StatusOr<Answer> answer;
  };

  ImageQuestions() = default;
  ImageQuestions(const ImageQuestions&) = delete;
  ImageQuestions& operator=(const ImageQuestions&) = delete;
  ~ImageQuestions() {
    const SteadyLock lock(&mu_);
    waiting_.clear();
  }

  // Begins to ask, unless a question of this name is under way, or has an answer that nobody has taken.
  void Ask(const std::string& name, Question question) ABSL_LOCKS_EXCLUDED(mu_) {
    const SteadyLock lock(&mu_);
    if (!asked_.insert(name).second) return;
    waiting_.emplace_back(name, std::move(question));
    quiet_since_ = std::chrono::steady_clock::now();
    for (const std::thread::id ended : std::exchange(ended_, {})) threads_.erase(ended);
    if (threads_.size() == kMostAtOnce) return;
    std::jthread thread([this] { AskAll(); });
    threads_.emplace(thread.get_id(), std::move(thread));
  }

  // Whichever answer comes first. Nothing: all are taken, or none has come for so long.
  std::optional<Answered> TakeAnswer(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    const SteadyLock lock(&mu_);
    while (!HasAnswerOrNone() && QuietFor() < limit)
      mu_.AwaitUntil(absl::Condition(this, &ImageQuestions::HasAnswerOrNone),
                     SteadyDeadline(limit - QuietFor()));
    if (answers_.empty()) return std::nullopt;
    Answered taken = std::move(answers_.front());
    answers_.pop_front();
    asked_.erase(taken.name);
    return taken;
  }

 private:
  // As many images as may be silent before others, which are not, wait for them.
  static constexpr size_t kMostAtOnce = 64;

  void AskAll() ABSL_LOCKS_EXCLUDED(mu_) {
    for (auto next = TakeQuestion(); next; next = TakeQuestion()) NoteAnswer(next->first, next->second());
  }
  std::optional<std::pair<std::string, Question>> TakeQuestion() ABSL_LOCKS_EXCLUDED(mu_) {
    const SteadyLock lock(&mu_);
    if (waiting_.empty()) {
      ended_.push_back(std::this_thread::get_id());
      return std::nullopt;
    }
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }
  void NoteAnswer(const std::string& name, absl::StatusOr<Answer> answer) ABSL_LOCKS_EXCLUDED(mu_) {
    const SteadyLock lock(&mu_);
    answers_.push_back({name, std::move(answer)});
    quiet_since_ = std::chrono::steady_clock::now();
  }
  absl::Duration QuietFor() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return absl::FromChrono(std::chrono::steady_clock::now() - quiet_since_);
  }
  bool HasAnswerOrNone() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !answers_.empty() || asked_.empty(); }

  SteadyMutex mu_;
  std::set<std::string> asked_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<std::string, Question>> waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<Answered> answers_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point quiet_since_ ABSL_GUARDED_BY(mu_);
  // Of threads that have only to be joined: a silent image may keep another one for as long as the array
  // runs.
  std::vector<std::thread::id> ended_ ABSL_GUARDED_BY(mu_);
  std::map<std::thread::id, std::jthread> threads_ ABSL_GUARDED_BY(mu_);  // last: they use the others
};

}  // namespace lunkeeper
