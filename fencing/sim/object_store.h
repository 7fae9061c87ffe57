#pragma once
// The objects of an API server, as it stores and serves them: versions, UIDs, merge patches, preconditions,
// finalizers, and watches that go on from a version. It knows no kind. One thread.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fencing/kube/kube_client.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

using kube::Json;

// The reader's end of a watch. What comes in is put into `changes`, in order; then `arrived` is called.
struct Feed {
  kube::Selection selection;
  Endpoint reader = 0;
  std::deque<kube::Change> changes;
  std::optional<absl::Status> end;  // OK: in order
  std::function<void()> arrived;    // empty: nobody waits
  // For the server.
  WorldTime next_at;  // changes keep their order
  std::deque<kube::Change> kept_back;
  std::optional<WorldTime> cut_at;
  void Close(const absl::Status& status) {
    if (end) return;
    end = status;
    if (arrived) arrived();
  }
};

class ObjectStore {
 public:
  // `changed` is called with each change, to hand it to the watches.
  using Changed = std::function<void(const std::string& plural, const kube::Change&)>;
  explicit ObjectStore(Changed changed) : changed_(std::move(changed)) {}

  // As the server's own controllers write: no precondition. Returns the new version.
  Version Put(const kube::ObjectRef& at, Json object);
  void Erase(const kube::ObjectRef& at);
  // Null: there is none.
  const Json* Find(const kube::ObjectRef& at) const;

  // The verbs, with the server's own statuses.
  absl::StatusOr<Json> Create(const kube::ObjectRef& at, const Json& object);
  absl::StatusOr<Json> Patch(const kube::ObjectRef& at, const Json& merge);
  absl::Status Delete(const kube::ObjectRef& at, const kube::Preconditions& only_if);
  // FAILED_PRECONDITION's word here is ABORTED: a conflict. NOT_FOUND: there is no such object.
  absl::Status Check(const kube::ObjectRef& at, const kube::Preconditions& only_if) const;
  std::vector<Json> List(const kube::Selection& selection) const;
  // What has changed since. OUT_OF_RANGE: nobody knows.
  absl::StatusOr<std::vector<kube::Change>> ChangesSince(const kube::Selection& selection,
                                                         const std::string& version) const;
  std::string version() const { return std::to_string(version_); }

  // No watch can go on from before now.
  void Compact() { oldest_ = version_, history_.clear(); }
  void TakeCopy() { copy_ = objects_; }
  // The versions go on, as the procedure for a restore demands; what was before is forgotten.
  void RestoreCopy();

 private:
  using Objects = std::map<std::string, std::map<std::string, Json>>;  // by plural, and by space/name
  struct Past {
    uint64_t version;
    std::string plural;
    kube::Change change;
  };
  void Note(const std::string& plural, kube::ChangeType type, const Json& object);

  const Changed changed_;
  uint64_t version_ = 0, oldest_ = 0, uids_ = 0;
  Objects objects_, copy_;
  std::vector<Past> history_;
};

bool Selects(const kube::Selection& selection, const Json& object);

}  // namespace lunkeeper::fencing::sim
