#include "devices/array/tgt/image_openings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// Each attempt may cost all other volumes of the tgtd some seconds. The first one comes soon, since others
// may have been opened beside the one that was silent.
constexpr absl::Duration kFirstPause = absl::Seconds(10), kLongestPause = absl::Hours(1);

}  // namespace

absl::Status ImageOpenings::BeginOpening(Generation grant) {
  const absl::MutexLock lock(&mu_);
  const auto blamed = blamed_.find(grant);
  const auto now = std::chrono::steady_clock::now();
  if (blamed != blamed_.end() && now < blamed->second.until)
    return absl::UnavailableError(absl::StrCat(
        "tgtd hung while it opened this image, and opens it again in ",
        absl::FormatDuration(absl::Ceil(absl::FromChrono(blamed->second.until - now), absl::Seconds(1)))));
  open_[grant] = true;
  return absl::OkStatus();
}

void ImageOpenings::EndOpening(Generation grant, const absl::Status& told) {
  const absl::MutexLock lock(&mu_);
  if (absl::IsUnavailable(told)) {
    open_[grant] = false;
    return;
  }
  open_.erase(grant);
  blamed_.erase(grant);
}

// What somebody waits for may be the next that tgtd comes to, so it is not over yet.
void ImageOpenings::NoteAnswer() {
  const absl::MutexLock lock(&mu_);
  std::erase_if(open_, [](const auto& opening) { return !opening.second; });
}

// tgtd does one request after the other, in an order that is not known here. So the image that it hangs on is
// one of them, and the others, which have waited behind it, are opened again at the next attempt.
bool ImageOpenings::BlameImages() {
  const absl::MutexLock lock(&mu_);
  for (const auto& [grant, waits] : open_) {
    Blame& blame = blamed_.try_emplace(grant, Blame{.pause = kFirstPause, .until = {}}).first->second;
    blame.until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(blame.pause);
    blame.pause = std::min(2 * blame.pause, kLongestPause);
  }
  const bool some = !open_.empty();
  open_.clear();
  return some;
}

}  // namespace lunkeeper
