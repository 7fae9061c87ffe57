#pragma once
// Converts a NodeFence to its object in Kubernetes, and back. The object's name is the node id
// (`<name>.<instance>`), as the arrays know it. Everything that the core records is in one object without a
// status subresource, so that one conditional write stores it all. An operator who makes one by hand needs to
// give no more than the name. Pure functions.

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fencing/core/types.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

inline const kube::Resource kNodeFences{"lunkeeper.io", "v1alpha1", "nodefences"};
inline constexpr char kFinalizer[] = "lunkeeper.io/fence";

// One entry of status.timeline. `event` is one of a fixed set of words, for programs: LastHeard, Decided,
// Asked, Recorded, Fencing, FenceFailed, Fenced, Tainted, Deleting, Deleted, Phase, Moved, Unfenced. `text`
// is for people.
struct TimelineEntry {
  absl::Time at;
  std::string event;
  std::string text;
  friend bool operator==(const TimelineEntry&, const TimelineEntry&) = default;
};
using Timeline = std::vector<TimelineEntry>;

using Finalizers = std::vector<std::string>;
bool HasOurs(const Finalizers& all);

struct RecordFacts {
  NodeFence fence;
  Timeline timeline;
  Finalizers finalizers;  // as of the fence's version
  // It is deleted, and is over for us: only finalizers of others keep its object.
  bool IsReleased() const { return fence.deleting && !HasOurs(finalizers); }
  friend bool operator==(const RecordFacts&, const RecordFacts&) = default;
};

RecordFacts ReadRecord(const kube::Json& object);
// The whole object, for its creation.
kube::Json NewRecord(const NodeFence& fence, const Timeline& timeline);
// The changes to an existing object: its status, never its spec, which says what was requested.
kube::Json RecordPatch(const NodeFence& fence, const Timeline& timeline);
// Only others remove their finalizers, and a merge patch replaces the whole list, so either list holds only
// for the version of the object that was read.
Finalizers WithOurs(Finalizers all);
Finalizers WithoutOurs(Finalizers all);

}  // namespace lunkeeper::fencing
