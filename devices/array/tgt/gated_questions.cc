#include "devices/array/tgt/gated_questions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "devices/array/tgt/image_questions.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<LunBacking> GatedQuestions::BackingOf(const GrantRow& grant) {
  const std::shared_ptr<Question> question = Ask(images_.VolumePath(grant.volume));
  // A slow store is not a silent one. From when it was asked: each of the calls in line, which are other
  // nodes' of a shared volume, would keep the gate for as long again.
  const auto asked_for = std::chrono::steady_clock::now() - question->asked;
  auto answer = AwaitAnswer(*question, kStoreAnswers - absl::FromChrono(asked_for));
  while (!answer) {
    if (IsReleaseDue(grant))
      return absl::UnavailableError(absl::StrCat("volume ", grant.volume.value(),
                                                 ": its image does not answer, and a grant of it is to be "
                                                 "released; try again"));
    answer = AwaitAnswer(*question, kLookAgain);
  }
  const absl::MutexLock lock(&mu_);
  EndAnswered();
  return *std::move(answer);
}

// One thread for each volume at most, since a node repeats a call that was given up.
std::shared_ptr<GatedQuestions::Question> GatedQuestions::Ask(const std::string& path) {
  const absl::MutexLock lock(&mu_);
  EndAnswered();
  Asked& asked = asked_[path];
  if (asked.question) return asked.question;
  asked.question = std::make_shared<Question>();
  asked.thread = std::jthread([this, path, question = asked.question] {
    absl::StatusOr<LunBacking> answer = images_.BackingOf(path);
    const absl::MutexLock answered(&mu_);
    question->answer = std::move(answer);
  });
  return asked.question;
}

std::optional<absl::StatusOr<LunBacking>> GatedQuestions::AwaitAnswer(const Question& question,
                                                                      absl::Duration within) {
  const auto is_answered = +[](const Question* asked) { return asked->answer.has_value(); };
  const absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(is_answered, &question), within);
  return question.answer;
}

// Their threads have nothing left to do, so none is waited for.
void GatedQuestions::EndAnswered() {
  std::erase_if(asked_, [](const auto& each) { return each.second.question->answer.has_value(); });
}

bool GatedQuestions::IsReleaseDue(const GrantRow& grant) const {
  const auto grants = catalogue_.grants().ListGrants(grant.cluster, {.volume = grant.volume, .node = {}});
  return grants.ok() && std::ranges::any_of(*grants, &GrantRow::releasing);
}

}  // namespace lunkeeper
