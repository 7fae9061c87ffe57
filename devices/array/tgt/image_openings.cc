#include "devices/array/tgt/image_openings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// Each attempt may cost all other volumes of the tgtd some seconds. The first one comes soon, since a slow
// cluster may have looked like a silent image.
constexpr absl::Duration kFirstPause = absl::Seconds(10), kLongestPause = absl::Hours(1);
// What has been opened for less long is not why tgtd does not answer.
constexpr absl::Duration kLong = absl::Seconds(5);
constexpr absl::Duration kTurnComes = absl::Seconds(10);

}  // namespace

absl::Status ImageOpenings::BeginOpening(Generation grant) {
  const absl::MutexLock lock(&mu_);
  const auto blamed = blamed_.find(grant);
  const auto now = std::chrono::steady_clock::now();
  if (blamed != blamed_.end() && now < blamed->second.until)
    return absl::UnavailableError(absl::StrCat(
        "tgtd hung while it opened this image, and opens it again in ",
        absl::FormatDuration(absl::Ceil(absl::FromChrono(blamed->second.until - now), absl::Seconds(1)))));
  if (!mu_.AwaitWithTimeout(absl::Condition(this, &ImageOpenings::IsNoneWaitedFor), kTurnComes))
    return absl::UnavailableError("tgtd is slow to open other images, one after another; try again");
  if (opening_)
    return absl::UnavailableError("tgtd has not answered since it began to open another image; try again");
  opening_ = {.grant = grant, .begun = std::chrono::steady_clock::now()};
  return absl::OkStatus();
}

// Without `opening_` of this grant, its tgtd was ended meanwhile.
void ImageOpenings::EndOpening(Generation grant, const absl::Status& told) {
  const absl::MutexLock lock(&mu_);
  const bool is_known = opening_ && opening_->grant == grant;
  if (absl::IsUnavailable(told)) {
    if (is_known) opening_->is_waited_for = false;
    return;
  }
  if (is_known) opening_.reset();
  blamed_.erase(grant);
}

void ImageOpenings::NoteAnswer() {
  const absl::MutexLock lock(&mu_);
  if (IsNoneWaitedFor()) opening_.reset();
}

bool ImageOpenings::BlameImage() {
  const absl::MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  if (!opening_ || absl::FromChrono(now - opening_->begun) < kLong) return false;
  Blame& blame = blamed_.try_emplace(opening_->grant, Blame{.pause = kFirstPause, .until = {}}).first->second;
  blame.until = now + absl::ToChronoNanoseconds(blame.pause);
  blame.pause = std::min(2 * blame.pause, kLongestPause);
  opening_.reset();
  return true;
}

}  // namespace lunkeeper
