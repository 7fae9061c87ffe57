#include "fencing/sim/object_store.h"

#include "absl/strings/numbers.h"

namespace lunkeeper::fencing::sim {
namespace {

using kube::TextAt;

std::string KeyOf(const kube::ObjectRef& at) { return at.space + "/" + at.name; }

absl::Status NoSuchObject(const kube::ObjectRef& at) {
  return absl::NotFoundError(at.resource.plural + " \"" + at.name + "\" not found");
}

bool IsDeleting(const Json& object) { return object["metadata"].contains("deletionTimestamp"); }

}  // namespace

bool Selects(const kube::Selection& selection, const Json& object) {
  if (!selection.space.empty() && TextAt(object, {"metadata", "namespace"}) != selection.space) return false;
  return selection.fields.empty() ||
         selection.fields == "metadata.name=" + TextAt(object, {"metadata", "name"}) ||
         selection.fields == "spec.nodeName=" + TextAt(object, {"spec", "nodeName"});
}

void ObjectStore::Note(const std::string& plural, kube::ChangeType type, const Json& object) {
  history_.push_back({version_, plural, {type, object}});
  changed_(plural, history_.back().change);
}

Version ObjectStore::Put(const kube::ObjectRef& at, Json object) {
  auto& objects = objects_[at.resource.plural];
  const auto known = objects.find(KeyOf(at));
  const bool is_new = known == objects.end();
  Json& metadata = object["metadata"];
  metadata["name"] = at.name;
  if (!at.space.empty()) metadata["namespace"] = at.space;
  if (is_new && !metadata.contains("uid")) metadata["uid"] = "uid-" + std::to_string(++uids_);
  if (!is_new && !metadata.contains("uid")) metadata["uid"] = known->second["metadata"]["uid"];
  const std::string next = std::to_string(++version_);
  metadata["resourceVersion"] = next;
  Json& stored = objects[KeyOf(at)];
  stored = std::move(object);
  Note(at.resource.plural, is_new ? kube::ChangeType::kAdded : kube::ChangeType::kModified, stored);
  return Version(next);
}

void ObjectStore::Erase(const kube::ObjectRef& at) {
  auto& objects = objects_[at.resource.plural];
  const auto known = objects.find(KeyOf(at));
  if (known == objects.end()) return;
  Json gone = std::move(known->second);
  objects.erase(known);
  gone["metadata"]["resourceVersion"] = std::to_string(++version_);
  Note(at.resource.plural, kube::ChangeType::kDeleted, gone);
}

const Json* ObjectStore::Find(const kube::ObjectRef& at) const {
  const auto objects = objects_.find(at.resource.plural);
  if (objects == objects_.end()) return nullptr;
  const auto known = objects->second.find(KeyOf(at));
  return known == objects->second.end() ? nullptr : &known->second;
}

absl::StatusOr<Json> ObjectStore::Create(const kube::ObjectRef& at, const Json& object) {
  kube::ObjectRef ref = at;
  ref.name = TextAt(object, {"metadata", "name"});
  if (ref.name.empty()) ref.name = TextAt(object, {"metadata", "generateName"}) + std::to_string(++uids_);
  if (Find(ref) != nullptr) return absl::AlreadyExistsError(ref.name + " already exists");
  Put(ref, object);
  return *Find(ref);
}

absl::Status ObjectStore::Check(const kube::ObjectRef& at, const kube::Preconditions& only_if) const {
  const Json* object = Find(at);
  if (object == nullptr) return NoSuchObject(at);
  const bool same =
      (only_if.uid.empty() || only_if.uid == TextAt(*object, {"metadata", "uid"})) &&
      (only_if.version.empty() || only_if.version == TextAt(*object, {"metadata", "resourceVersion"}));
  return same ? absl::OkStatus() : absl::AbortedError(at.name + ": the object has been modified");
}

// An object that is being deleted goes with its last finalizer, and takes on no new one.
absl::StatusOr<Json> ObjectStore::Patch(const kube::ObjectRef& at, const Json& merge) {
  const Json* known = Find(at);
  if (known == nullptr) return NoSuchObject(at);
  Json object = *known;
  object.merge_patch(merge);
  const auto& finalizers = kube::FieldAt(object, {"metadata", "finalizers"});
  if (IsDeleting(object) && finalizers.size() > kube::FieldAt(*known, {"metadata", "finalizers"}).size())
    return absl::InvalidArgumentError(at.name + " is being deleted: no new finalizers can be added");
  if (object == *known) return object;
  if (IsDeleting(object) && finalizers.empty()) {
    Erase(at);
    return object;
  }
  Put(at, std::move(object));
  return *Find(at);
}

absl::Status ObjectStore::Delete(const kube::ObjectRef& at, const kube::Preconditions& only_if) {
  if (auto status = Check(at, only_if); !status.ok()) return status;
  Json object = *Find(at);
  if (kube::FieldAt(object, {"metadata", "finalizers"}).empty()) {
    Erase(at);
  } else if (!IsDeleting(object)) {
    object["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z";
    Put(at, std::move(object));
  }
  return absl::OkStatus();
}

std::vector<Json> ObjectStore::List(const kube::Selection& selection) const {
  std::vector<Json> found;
  if (const auto objects = objects_.find(selection.resource.plural); objects != objects_.end())
    for (const auto& [key, object] : objects->second)
      if (Selects(selection, object)) found.push_back(object);
  return found;
}

absl::StatusOr<std::vector<kube::Change>> ObjectStore::ChangesSince(const kube::Selection& selection,
                                                                    const std::string& version) const {
  uint64_t since = 0;
  if (!absl::SimpleAtoi(version, &since) || since < oldest_)
    return absl::OutOfRangeError("too old resource version");
  std::vector<kube::Change> changes;
  for (auto past = history_.rbegin(); past != history_.rend() && past->version > since; ++past)
    if (past->plural == selection.resource.plural && Selects(selection, past->change.object))
      changes.push_back(past->change);
  return std::vector<kube::Change>(changes.rbegin(), changes.rend());
}

void ObjectStore::RestoreCopy() {
  objects_ = copy_;
  oldest_ = ++version_;
  history_.clear();
}

}  // namespace lunkeeper::fencing::sim
