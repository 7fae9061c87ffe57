#pragma once
// Which cache id tgtd shows for each target, as its LUN's product id (cache_id.h). That of the array counts
// for all; an image whose disk fails to take writes gets another of its own (image_errors.h). Thread-safe.
// What tgtd does not take is tried again with the next ShowErrors.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/image_errors.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper {

class ShownCacheIds {
 public:
  ShownCacheIds(const TgtClient* tgt, std::string array_id) : tgt_(tgt), array_id_(std::move(array_id)) {}

  // tgtd has just opened the image. Returns the LUN's parameter, to be shown before a node can log in.
  // `errors` may be null: the image has no id of its own.
  absl::StatusOr<std::string> BeginWatch(int32_t target, std::shared_ptr<const ImageErrors> errors)
      ABSL_LOCKS_EXCLUDED(mu_);
  // An agent before this one had tgtd open it.
  void ResumeWatch(int32_t target, std::shared_ptr<const ImageErrors> errors) ABSL_LOCKS_EXCLUDED(mu_);
  void EndWatch(int32_t target) ABSL_LOCKS_EXCLUDED(mu_);
  // Has tgtd show the ids of images whose disk has failed to take writes. To be called often.
  void ShowErrors() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Image {
    std::shared_ptr<const ImageErrors> errors;
    std::string shown = {};
  };

  std::string ParameterOf(const std::string& image_id) const;

  const TgtClient* const tgt_;
  const std::string array_id_;
  absl::Mutex mu_;
  // Also while tgtd is dead: the kernel reports the errors of its last flushes to nobody else.
  std::map<int32_t, Image> images_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
