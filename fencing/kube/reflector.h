#pragma once
// Tells one consumer what there is of a kind of objects, for as long as it lives: lists, watches, and does so
// again after whatever goes wrong (a lost or silent connection, versions no longer kept, garbage, an API
// server that restarts or was restored from an older copy). What the consumer hears may come late or twice,
// but it always ends at the truth.
//
// One thread, which the reflector owns, calls the sink; the sink may not destroy the reflector. The
// destructor stops and joins it within moments. Nothing fails for good: what goes wrong is logged once and
// tried again.

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// Who is told; on the reflector's thread only.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual void Listing() = 0;  // all that exists follows as Seen, then Listed
  virtual void Seen(const Json& object) = 0;
  virtual void Gone(const Json& object) = 0;
  virtual void Listed() = 0;  // what was not Seen since Listing does not exist
  // True: what was told is as new as the API server's word. False: it grows old. Said when it changes; before
  // the first true it is false. A server that hangs is noticed when the watch is due to end.
  virtual void Live(bool live) = 0;
};

struct WatchTimes {
  absl::Duration watch = absl::Seconds(30);  // how long one watch lasts, and so a silent one is believed
  absl::Duration call = absl::Seconds(10);   // for a page of a list, for opening a watch
  absl::Duration first_pause = absl::Milliseconds(100);  // doubles with each failure in a row
  absl::Duration longest_pause = absl::Seconds(5);
};

class Reflector {
 public:
  virtual ~Reflector() = default;
};

// Starts at once. `client` and `sink` outlive it.
std::unique_ptr<Reflector> StartReflector(KubeClient& client, const Selection& selection, WatchSink& sink,
                                          const WatchTimes& times = {});

}  // namespace lunkeeper::kube
