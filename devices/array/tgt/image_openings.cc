#include "devices/array/tgt/image_openings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// Each attempt may cost all other volumes of the tgtd some seconds. The first
// one comes soon, since a slow cluster may have looked like a silent image.
constexpr absl::Duration kFirstPause = absl::Seconds(10), kLastPause = absl::Minutes(10);
// What has been opened for less long is not why tgtd does not answer.
constexpr absl::Duration kLong = absl::Seconds(5);
constexpr absl::Duration kTurnComes = absl::Seconds(10);
// Of the store's answers for an image.
constexpr absl::Duration kAtOnce = absl::Seconds(1), kSilent = absl::Seconds(3), kWell = absl::Seconds(10);

}  // namespace

ImageOpenings::ImageOpenings(std::string mark) : mark_(std::move(mark)) {
  Generation grant = 0;
  if (mark_.empty() || !(std::ifstream(mark_) >> grant)) return;
  const auto begun = std::chrono::steady_clock::now() - absl::ToChronoNanoseconds(kLong);
  opening_ = {.grant = grant, .begun = begun, .is_waited_for = false};
  marked_ = true;
}

absl::Status ImageOpenings::CheckNotBlamed(Generation grant) const {
  const SteadyLock lock(&mu_);
  return BlameOf(grant);
}

absl::Status ImageOpenings::BeginOpening(Generation grant) {
  const SteadyLock lock(&mu_);
  const absl::Status blamed = BlameOf(grant);
  return blamed.ok() ? TakeTurn(grant) : blamed;
}

absl::Status ImageOpenings::BlameOf(Generation grant) const {
  const auto blamed = blamed_.find(grant);
  const auto now = std::chrono::steady_clock::now();
  if (blamed != blamed_.end() && now < blamed->second.until)
    return absl::UnavailableError(absl::StrCat(
        "tgtd hung while it opened this image, and opens it again in ",
        absl::FormatDuration(absl::Ceil(absl::FromChrono(blamed->second.until - now), absl::Seconds(1)))));
  return absl::OkStatus();
}

absl::Status ImageOpenings::BeginClosing(Generation grant) {
  const SteadyLock lock(&mu_);
  return TakeTurn(grant);
}

absl::Status ImageOpenings::TakeTurn(Generation grant) {
  if (!mu_.AwaitUntil(absl::Condition(this, &ImageOpenings::IsNoneWaitedFor), SteadyDeadline(kTurnComes)))
    return absl::UnavailableError("tgtd is slow to open other images, one after another; try again");
  if (opening_)
    return absl::UnavailableError(
        "tgtd has not answered since it began to "
        "open another image; try again");
  opening_ = {.grant = grant, .begun = std::chrono::steady_clock::now()};
  marked_ = !mark_.empty();
  if (marked_) std::ofstream(mark_) << grant;
  return absl::OkStatus();
}

// Without `opening_` of this grant, its tgtd was ended meanwhile.
void ImageOpenings::EndOpening(Generation grant, const absl::Status& told) {
  const SteadyLock lock(&mu_);
  const bool is_known = opening_ && opening_->grant == grant;
  if (absl::IsUnavailable(told)) {
    if (is_known) opening_->is_waited_for = false;
    return;
  }
  if (is_known) ForgetOpening();
  if (!absl::IsNotFound(told))
    blamed_.erase(grant);  // or nothing was open, and nothing was asked of the store
}

void ImageOpenings::NoteAnswer() {
  const SteadyLock lock(&mu_);
  if (IsNoneWaitedFor()) ForgetOpening();
}

bool ImageOpenings::BlameImage() {
  const SteadyLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  if (!opening_ || absl::FromChrono(now - opening_->begun) < kLong) return false;
  const auto before = blamed_.find(opening_->grant);
  const absl::Duration pause = before == blamed_.end() ? kFirstPause : before->second.pause;
  blamed_[opening_->grant] = Blame{.pause = std::min(2 * pause, kLastPause),
                                   .until = now + absl::ToChronoNanoseconds(pause),
                                   .well_since = {}};
  // The mark stays until the next tgtd answers: this agent may die before it has ended this one.
  opening_.reset();
  return true;
}

void ImageOpenings::NoteLook(Generation grant, SteadyTime asked, SteadyTime answered) {
  const SteadyLock lock(&mu_);
  const auto found = blamed_.find(grant);
  if (found == blamed_.end()) return;
  Blame& blame = found->second;
  const absl::Duration took = absl::FromChrono(answered - asked);
  if (took >= kSilent) blame.was_silent = true;
  if (took >= kAtOnce) blame.well_since.reset();
  if (took >= kAtOnce || !blame.was_silent) return;
  if (!blame.well_since) blame.well_since = asked;
  if (absl::FromChrono(answered - *blame.well_since) >= kWell) blame.until = {};
}

void ImageOpenings::ForgetOpening() {
  opening_.reset();
  std::error_code none;
  if (std::exchange(marked_, false)) std::filesystem::remove(mark_, none);
}

}  // namespace lunkeeper
