// Each question has a thread of its own, which may outlive the call that asked: Ceph answers when it will. So
// a question owns what it needs, and what it finds after its call was given up changes nothing.
#include "devices/array/tgt/gated_questions.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "devices/array/tgt/ended_clients.h"
#include "devices/array/tgt/image_questions.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(100);
// Who registers may be the tick of all the array, or a start that keeps the portal closed for all volumes.
constexpr absl::Duration kRegistrationTakes = kStoreAnswers;

}  // namespace

absl::StatusOr<LunBacking> GatedQuestions::BackingOf(const GrantRow& grant, absl::Duration most) {
  const std::string path = images_.VolumePath(grant.volume);
  return AskUntilRelease(
      grant, {path, 0}, [this, path] { return images_.BackingOf(path); }, most);
}

absl::Status GatedQuestions::BeginOpening(const GrantRow& grant,
                                          const std::shared_ptr<std::set<std::string>>& before) {
  const std::string path = images_.VolumePath(grant.volume);
  // It has no LUN now. An attempt before may have noted one that is not opened, and this one may be refused.
  EndClientsOf(grant);
  return AskAnew(grant, [this, path, before]() -> absl::Status {
    ASSIGN_OR_RETURN(*before, images_.ListOpeners(path));
    return images_.NoteOpening(path);
  });
}

absl::Status GatedQuestions::RegisterOpened(const GrantRow& grant,
                                            const std::shared_ptr<std::set<std::string>>& before) {
  const auto awaited = std::make_shared<std::atomic<bool>>(true);
  const absl::Status registered = AskAnew(grant, [this, grant, before, awaited]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string client,
                     images_.RegisterOpened(images_.VolumePath(grant.volume), *before,
                                            [awaited] { return awaited->load(); }));
    clients_.NoteOpened(images_, grant, client);
    return absl::OkStatus();
  });
  *awaited = false;  // before the caller closes the LUN
  return registered;
}

absl::Status GatedQuestions::CheckOnlyOwn(const GrantRow& grant) {
  return AskAnew(grant, [this, grant] { return CheckFound(grant); });
}

void GatedQuestions::EndClientsOf(const GrantRow& grant) {
  if (!clients_.EndClient(images_, grant)) EndClientsOfClosed(catalogue_, images_, grant);
}

// With the last one, all clients of the image are forgotten, which shuts out nobody.
void GatedQuestions::EndClientsOfReleased(const GrantRow& grant) {
  if (!clients_.Knows(grant)) return;
  const absl::StatusOr<size_t> left = CountLuns(grant);
  if (left.ok() && *left > 0) clients_.EndClient(images_, grant);
  clients_.ForgetLun(grant);
}

// A LUN has its row before it is opened, until it is closed.
absl::StatusOr<size_t> GatedQuestions::CountLuns(const GrantRow& grant) const {
  ASSIGN_OR_RETURN(const auto grants,
                   catalogue_.grants().ListGrants(grant.cluster, {.volume = grant.volume, .node = {}}));
  return grants.size();
}

absl::Status GatedQuestions::AskAnew(const GrantRow& grant, std::function<absl::Status()> ask) {
  const std::string path = images_.VolumePath(grant.volume);
  // One that was given up, since the gate lets in one call at a time.
  if (IsRegistering(path))
    return absl::UnavailableError(
        absl::StrCat("volume ", grant.volume.value(), ": its image is still being registered; try again"));
  const auto answer = [path, ask = std::move(ask)]() -> Answer {
    RETURN_IF_ERROR(ask());
    return LunBacking{.path = path};
  };
  return AskUntilRelease(grant, {path, ++registrations_}, answer, kRegistrationTakes).status();
}

GatedQuestions::Answer GatedQuestions::AskUntilRelease(const GrantRow& grant, const Name& name,
                                                       std::function<Answer()> ask, absl::Duration most) {
  const std::shared_ptr<Question> question = Ask(name, std::move(ask));
  // A slow store is not a silent one. From when it was asked: each of the calls in line, which are other
  // nodes' of a shared volume, would keep the gate for as long again.
  const auto asked_for = std::chrono::steady_clock::now() - question->asked;
  auto answer = AwaitAnswer(*question, kStoreAnswers - absl::FromChrono(asked_for));
  while (!answer) {
    if (std::chrono::steady_clock::now() - question->asked >= absl::ToChronoNanoseconds(most))
      return absl::UnavailableError(
          absl::StrCat("volume ", grant.volume.value(), ": its image does not answer; try again"));
    if (IsReleaseDue(grant))
      return absl::UnavailableError(absl::StrCat("volume ", grant.volume.value(),
                                                 ": its image does not answer, and a grant of it is to be "
                                                 "released; try again"));
    answer = AwaitAnswer(*question, kLookAgain);
  }
  const SteadyLock lock(&mu_);
  EndAnswered();
  return *std::move(answer);
}

bool GatedQuestions::IsRegistering(const std::string& path) {
  const SteadyLock lock(&mu_);
  EndAnswered();
  const auto first = asked_.lower_bound({path, 1});
  return first != asked_.end() && first->first.first == path;
}

// A node repeats a call that was given up: each volume has one thread at most for its backing, and one for a
// registration.
std::shared_ptr<GatedQuestions::Question> GatedQuestions::Ask(const Name& name, std::function<Answer()> ask) {
  const SteadyLock lock(&mu_);
  EndAnswered();
  Asked& asked = asked_[name];
  if (asked.question) return asked.question;
  asked.question = std::make_shared<Question>();
  asked.thread = std::jthread([this, ask = std::move(ask), question = asked.question] {
    Answer answer = ask();
    const SteadyLock answered(&mu_);
    question->answer = std::move(answer);
  });
  return asked.question;
}

std::optional<GatedQuestions::Answer> GatedQuestions::AwaitAnswer(const Question& question,
                                                                  absl::Duration within) {
  const auto is_answered = +[](const Question* asked) { return asked->answer.has_value(); };
  const SteadyLock lock(&mu_);
  mu_.AwaitUntil(absl::Condition(is_answered, &question), SteadyDeadline(within));
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
