#pragma once
// The verbs of the Kubernetes API that failover needs, for any kind of object. Objects are the server's own
// JSON (json.h reads it).
//
// Thread-safe. Every call blocks its thread and ends at its deadline or when asked to stop. The client keeps
// nothing between calls but open connections. Failure: the codes of api_error.h and https.h. After
// UNAVAILABLE or DEADLINE_EXCEEDED a write may or may not have taken place, so writes have preconditions and
// callers read the object again. Repetition: the client repeats reads, and deletes with a UID, when a kept
// connection turns out to be closed; it never repeats other writes.

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
  // The `apiVersion` of its objects: "v1", "apps/v1".
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

// The objects of a kind that match all that is given here; an empty field matches everything.
struct Selection {
  Resource resource;
  std::string space = {};
  std::string labels = {};
  std::string fields = {};  // "spec.nodeName=n1"
};

// A write takes place only if the object still has this UID and version; an empty field is not checked.
struct Preconditions {
  std::string uid = {};
  std::string version = {};  // metadata.resourceVersion
};

struct PageRequest {
  int most = 500;
  std::string next = {};  // from the previous page's end; empty: the first page
};
struct PageEnd {
  std::string version;  // of the list: a watch can start there
  std::string next;     // empty: this was the last page
};

enum class ChangeType { kAdded, kModified, kDeleted, kBookmark };
struct Change {
  ChangeType type = ChangeType::kBookmark;
  Json object;  // a bookmark's has a version only
};

// One watch; one thread uses it.
class WatchStream {
 public:
  virtual ~WatchStream() = default;
  // The next change; nullopt: the server ended the watch in order. OUT_OF_RANGE: changes were lost, list
  // again.
  virtual absl::StatusOr<std::optional<Change>> Next() = 0;
};

class KubeClient {
 public:
  virtual ~KubeClient() = default;

  virtual absl::StatusOr<Json> Get(const ObjectRef& object, const Limits& limits) = 0;
  // Calls `each` with every object as it arrives, even if the page fails later. Requesting the page again
  // delivers them again.
  virtual absl::StatusOr<PageEnd> ListPage(const Selection& selection, const PageRequest& page,
                                           const std::function<void(Json object)>& each,
                                           const Limits& limits) = 0;
  // Streams the changes after `version`. The server ends the stream in order shortly before the deadline, so
  // a stream that reaches it is dead, and its Next() fails with DEADLINE_EXCEEDED. `open_by` limits the
  // opening.
  virtual absl::StatusOr<std::unique_ptr<WatchStream>> OpenWatch(const Selection& selection,
                                                                 const std::string& version,
                                                                 absl::Time open_by,
                                                                 const Limits& limits) = 0;
  // Returns the object as stored. `at` names the kind, the namespace and possibly a subresource.
  virtual absl::StatusOr<Json> Create(const ObjectRef& at, const Json& object, const Limits& limits) = 0;
  // A JSON merge patch (RFC 7396). ABORTED when a precondition does not hold.
  virtual absl::StatusOr<Json> Patch(const ObjectRef& object, const Json& merge, const Preconditions& only_if,
                                     const Limits& limits) = 0;
  // Requests deletion. With a grace period or finalizers the object remains for a while.
  virtual absl::Status Delete(const ObjectRef& object, const Preconditions& only_if,
                              std::optional<absl::Duration> grace, const Limits& limits) = 0;
};

// Connects with the first call. INVALID_ARGUMENT: the configuration cannot work.
absl::StatusOr<std::unique_ptr<KubeClient>> MakeKubeClient(const KubeConfig& config);

}  // namespace lunkeeper::kube
