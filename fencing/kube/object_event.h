#pragma once
// Writes events.k8s.io/v1 Events: sentences for people about an object, shown by `kubectl describe` and
// `kubectl events`. Stateless, thread-safe. Nothing may depend on one. Not repeatable: each call makes
// another event, but of one that has a name of its own: ALREADY_EXISTS, somebody has recorded it.

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

enum class EventKind { kNormal, kWarning };

struct ObjectEvent {
  // The object that the event is about.
  std::string api_version = {}, kind = {}, space = {}, name = {}, uid = {};
  EventKind event_kind = EventKind::kNormal;
  std::string reason = {};             // one CamelCase word: "Fenced"
  std::string action = {};             // what was done: "Fence"
  std::string note = {};               // the sentence; cut at 1 KiB
  std::string reporter_instance = {};  // the replica that reports it
  std::string own_name = {};           // of the event; empty: whatever is free
};

absl::Status RecordEvent(KubeClient& client, const ObjectEvent& event, absl::Time now, const Limits& limits);

}  // namespace lunkeeper::kube
