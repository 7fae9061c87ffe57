#include "devices/array/tgt/image_reopener.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Several times within the 20 s for which a node does not believe an error.
constexpr absl::Duration kLookForShutOut = absl::Seconds(2);

}  // namespace

void ImageReopener::StartLooking() {
  if (!looks_ && !stopping_) looks_.emplace(kLookForShutOut, [this] { ReopenShutOut(); });
}

void ImageReopener::StopLooking() {
  stopping_ = true;
  looks_.reset();
}

void ImageReopener::ReopenShutOut() {
  const absl::StatusOr<std::set<std::string>> found = images_.FindShutOut();
  if (!found.ok()) return LogWarn("array", std::string(found.status().message()));
  for (const std::string& path : *found) {
    if (stopping_ || !images_.ConfirmHeld().ok()) return;
    LogWarn("array", "somebody has shut this gateway out of an image: it is opened anew", {{"image", path}});
    const absl::Status reopened = ReopenImage(path);
    if (!reopened.ok())
      LogError("array", absl::StrCat("open image ", path, " anew: ", reopened.message(), "; trying again"));
  }
}

// The clients of before end with the last of the image's LUNs, and not earlier: an agent that starts beside
// this tgtd has to find that there is something to open anew. A LUN that is opened meanwhile has its row
// before it has a client.
absl::Status ImageReopener::ReopenImage(const std::string& path) {
  const std::set<std::string> clients = images_.ListClients(path);
  ASSIGN_OR_RETURN(std::vector<GrantRow> grants, catalogue_.grants().ListAllGrants());
  std::erase_if(grants, [&](const GrantRow& grant) { return images_.VolumePath(grant.volume) != path; });
  // First of all: where one of them cannot be opened anew, the others are not cut in vain.
  for (const GrantRow& grant : grants) {
    if (grant.releasing) return absl::UnavailableError("a grant of it is being released");
    RETURN_IF_ERROR(check_(grant));
  }
  for (const GrantRow& grant : grants) {
    const auto pass = gates_.Enter(grant.volume, absl::Now() + kLookForShutOut);
    if (!pass.has_value()) return absl::UnavailableError("its volume is busy");
    ASSIGN_OR_RETURN(const auto now, catalogue_.grants().FindGeneration(grant.generation));
    if (now.has_value() && now->releasing) return absl::UnavailableError("a grant of it is being released");
    if (now.has_value()) RETURN_IF_ERROR(reopen_(*now));
  }
  images_.EndClients(path, clients);
  return absl::OkStatus();
}

}  // namespace lunkeeper
