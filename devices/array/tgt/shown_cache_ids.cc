#include "devices/array/tgt/shown_cache_ids.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hmac.h"
#include "base/status_macros.h"

namespace lunkeeper {

// Of an image with an id of its own, both count: a restart of the host loses its cache as any other's.
std::string ShownCacheIds::ParameterOf(const std::string& image_id) const {
  if (image_id.empty()) return absl::StrCat("product_id=", array_id_);
  const std::string both = HmacSha256(array_id_, image_id).substr(0, array_id_.size() / 2);
  return absl::StrCat("product_id=", absl::BytesToHexString(both));
}

// The kernel reports errors of the image to tgtd from now on. It may have reported those before to a session
// that was cut to have the image opened anew, and to the one who watched since that opening.
absl::StatusOr<std::string> ShownCacheIds::BeginWatch(int32_t target,
                                                      std::shared_ptr<const ImageErrors> errors) {
  if (!errors) return ParameterOf("");
  Image before;
  {
    const absl::MutexLock lock(&mu_);
    before = std::exchange(images_[target], {errors});
  }
  if (before.errors) before.errors->ReadCacheId().IgnoreError();
  ASSIGN_OR_RETURN(const std::string id, errors->ReadCacheId());
  const absl::MutexLock lock(&mu_);
  if (const auto found = images_.find(target); found != images_.end()) found->second.shown = id;
  return ParameterOf(id);
}

void ShownCacheIds::ResumeWatch(int32_t target, std::shared_ptr<const ImageErrors> errors) {
  if (!errors) return;
  const absl::MutexLock lock(&mu_);
  images_.try_emplace(target, Image{std::move(errors)});
}

void ShownCacheIds::EndWatch(int32_t target) {
  const absl::MutexLock lock(&mu_);
  images_.erase(target);
}

void ShownCacheIds::ShowErrors() {
  std::map<int32_t, Image> images;
  {
    const absl::MutexLock lock(&mu_);
    images = images_;
  }
  for (const auto& [target, image] : images) {
    const absl::StatusOr<std::string> id = image.errors->ReadCacheId();
    if (!id.ok() || *id == image.shown) continue;
    const absl::Status shown = tgt_->UpdateLun(target, ParameterOf(*id));
    if (absl::IsUnavailable(shown)) return;  // and each further one would take as long to fail
    if (!shown.ok()) continue;
    const absl::MutexLock lock(&mu_);
    const auto found = images_.find(target);
    if (found != images_.end() && found->second.errors == image.errors) found->second.shown = *id;
  }
}

}  // namespace lunkeeper
