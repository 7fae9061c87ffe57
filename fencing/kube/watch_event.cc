#include "fencing/kube/watch_event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "fencing/kube/api_error.h"

namespace lunkeeper::kube {
namespace {

std::optional<ChangeType> TypeOf(const std::string& text) {
  if (text == "ADDED") return ChangeType::kAdded;
  if (text == "MODIFIED") return ChangeType::kModified;
  if (text == "DELETED") return ChangeType::kDeleted;
  if (text == "BOOKMARK") return ChangeType::kBookmark;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Change> ParseWatchEvent(const std::string& what, std::string_view text) {
  auto event = ParseJson(text);
  if (!event.ok()) return absl::InternalError(absl::StrCat(what, ": an event is not JSON"));
  const std::string type = TextAt(*event, {"type"});
  const Json& object = FieldAt(*event, {"object"});
  // Most often 410 Gone: the watch was too slow or its version too old.
  if (type == "ERROR") return EventError(what, object);
  // Every object has a version, bookmarks above all: it is where the next watch resumes.
  const auto known = TypeOf(type);
  if (!known || TextAt(object, {"metadata", "resourceVersion"}).empty())
    return absl::InternalError(absl::StrCat(what, ": an event is not as expected"));
  return Change{*known, std::move(event->at("object"))};
}

}  // namespace lunkeeper::kube
