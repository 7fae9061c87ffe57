#pragma once
// Delivers all objects of one kind to a consumer, and then every change (client-go calls this a reflector).
// It lists, watches, and starts over after any failure: a lost or silent connection, an expired version,
// garbage, an API server that restarts or was restored from a backup. The consumer may receive a change late
// or twice, but always ends up with the current state.
//
// The reflector owns one thread, which calls the sink; the sink may not destroy the reflector. The destructor
// stops and joins that thread within moments. Nothing fails for good: an error is logged once and the work
// repeated.

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// Receives objects, on the reflector's thread only.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  // Every existing object follows by OnObject, then comes OnListEnd. Objects that did not come do not exist.
  // A list that fails midway starts over with another OnListStart.
  virtual void OnListStart() = 0;
  virtual void OnObject(const Json& object) = 0;
  virtual void OnDeleted(const Json& object) = 0;
  virtual void OnListEnd() = 0;
  // True: the consumer is up to date, and a watch keeps it so. False: the watch is down. Called when it
  // changes, first with true. A server that hangs is noticed when its watch is due to end.
  virtual void OnLive(bool live) = 0;
};

struct WatchTimes {
  // How long one watch lasts, and so for how long a silent one is trusted.
  absl::Duration watch = absl::Seconds(30);
  absl::Duration call = absl::Seconds(10);               // for a page of a list, and for opening a watch
  absl::Duration first_pause = absl::Milliseconds(100);  // doubles with each failure in a row
  absl::Duration longest_pause = absl::Seconds(5);
};

class Reflector {
 public:
  virtual ~Reflector() = default;
  // Ends the watch, lists everything anew and watches from there: for a caller who knows from elsewhere that
  // the watch has missed something. Returns at once; a list that is under way is enough. The sink stays live
  // meanwhile. Any thread may call it, but not before StartReflector has returned.
  virtual void ListAgain() = 0;
};

// Starts at once. `client` and `sink` outlive it.
std::unique_ptr<Reflector> StartReflector(KubeClient& client, const Selection& selection, WatchSink& sink,
                                          const WatchTimes& times = {}, Executor& executor = RealExecutor());

}  // namespace lunkeeper::kube
