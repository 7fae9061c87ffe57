#pragma once
// The few verbs of the Kubernetes API that the failover needs, on any kind of object. Objects are JSON as the
// server speaks it (json.h reads them); what is kept of them is the caller's business.
//
// Thread-safe. Every call blocks its thread and ends at its deadline or when asked to stop; nothing is
// remembered between calls but open connections. Failure: the codes of api_error.h and https.h; after
// UNAVAILABLE or DEADLINE_EXCEEDED it is not known whether a write was carried out, so writes carry
// preconditions and callers look again. Repetition: reads, and deletes with a UID, are sent again by
// themselves when a kept connection turns out to be closed; other writes never are.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fencing/kube/config.h"
#include "fencing/kube/https.h"
#include "fencing/kube/json.h"

namespace lunkeeper::kube {

struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;  // as in the path: "pods"
  // As its objects carry it: "v1", "apps/v1".
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
};
inline const Resource kNodes{"", "v1", "nodes"};
inline const Resource kPods{"", "v1", "pods"};
inline const Resource kCsiNodes{"storage.k8s.io", "v1", "csinodes"};

// One object, or one of its subresources.
struct ObjectRef {
  Resource resource;
  std::string space;  // its namespace; empty: none
  std::string name;
  std::string subresource = {};  // "status"
};

// All objects of a kind, of one namespace or of all, that the selectors take; empty: everything.
struct Selection {
  Resource resource;
  std::string space = {};
  std::string labels = {};
  std::string fields = {};  // "spec.nodeName=n1"
};

// A write takes place only if the object still is this one and as it was; empty: whatever it is.
struct Preconditions {
  std::string uid = {};
  std::string version = {};  // metadata.resourceVersion
};

struct PageRequest {
  int most = 500;
  std::string next = {};  // from the page before; empty: the first
};
struct PageEnd {
  std::string version;  // the list's; what a watch goes on from
  std::string next;     // empty: this was the last
};

enum class ChangeType { kAdded, kModified, kDeleted, kBookmark };
struct Change {
  ChangeType type = ChangeType::kBookmark;
  Json object;  // of a bookmark only the version
};

// One watch; one thread uses it.
class WatchStream {
 public:
  virtual ~WatchStream() = default;
  // The next change; none: the server ended the watch in order. OUT_OF_RANGE: changes were missed, list
  // again.
  virtual absl::StatusOr<std::optional<Change>> Next() = 0;
};

class KubeClient {
 public:
  virtual ~KubeClient() = default;

  virtual absl::StatusOr<Json> Get(const ObjectRef& object, const Limits& limits) = 0;
  // Hands each object to `each` as it arrives, also when the page then fails. Starting a page anew repeats
  // them.
  virtual absl::StatusOr<PageEnd> List(const Selection& selection, const PageRequest& page,
                                       const std::function<void(Json object)>& each,
                                       const Limits& limits) = 0;
  // What changed after `version`. It lasts until shortly before the deadline: a stream that says nothing
  // until then is a dead one, and its Next() fails with DEADLINE_EXCEEDED. `open_by` bounds the opening.
  virtual absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const Selection& selection,
                                                             const std::string& version, absl::Time open_by,
                                                             const Limits& limits) = 0;
  // Returns the object as it was stored. `at` names the kind and namespace, and the subresource if there is
  // one.
  virtual absl::StatusOr<Json> Create(const ObjectRef& at, const Json& object, const Limits& limits) = 0;
  // A JSON merge patch (RFC 7396). ABORTED when a precondition does not hold.
  virtual absl::StatusOr<Json> Patch(const ObjectRef& object, const Json& merge, const Preconditions& only_if,
                                     const Limits& limits) = 0;
  // Asks for deletion; with a grace period or finalizers the object is still there for a while.
  virtual absl::Status Delete(const ObjectRef& object, const Preconditions& only_if,
                              std::optional<absl::Duration> grace, const Limits& limits) = 0;
};

// Connects with the first call. INVALID_ARGUMENT for a configuration that cannot be right.
absl::StatusOr<std::unique_ptr<KubeClient>> MakeKubeClient(const KubeConfig& config);

}  // namespace lunkeeper::kube
