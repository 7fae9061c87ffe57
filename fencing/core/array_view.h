#pragma once
// The events of arrays: what a look at one shows, and whether it is there. Plain values.

#include <optional>
#include <string>
#include <vector>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// A node's last write to its heartbeat LUN, as the array's agent saw it land.
struct LandedWrite {
  NodeId node;
  uint64_t sequence = 0;
  Span age = {};  // since it landed, by the agent's clock
};
struct Holding {
  VolumeId volume;
  NodeId node;
  uint64_t commands = 0;      // completed since the grant was made
  Generation generation = 0;  // of the grant: another one is another grant
  bool counted = true;        // false: its part of the array does not answer; there may be I/O or none
};
// A poll's answer: one look at an array, as it was at some time between asking and answering. `asked` is when
// the poll was sent: what this core did to the array since then may be missing.
struct ArrayView {
  ArrayId array;
  Instant asked = {};
  std::vector<Holding> holdings;
  std::vector<ArrayFence> fences;
  // Nodes that are not in here wrote nothing since. Taken in fastest in the order of the nodes' ids.
  std::vector<LandedWrite> landed = {};
  std::optional<Instant> signs_asked = {};  // for the commands and the writes; empty: with all else
  std::string unseen = {};                  // why some holdings are not counted, for people; empty: all are
};
struct ArrayLost {  // a look at it failed, or it never answered one; that it is late shows by itself
  ArrayId array;
};
// It is configured, whether it answers or not. Told of each before the first Tick, and may be repeated.
struct ArrayConfigured {
  ArrayId array;
};
struct ArrayGone {  // it is configured no more: nobody waits for it
  ArrayId array;
};
// To a ProbePortals: one of the portals accepted a connection. Of the others nothing is said.
struct PortalAnswered {
  ArrayId array;
};

}  // namespace lunkeeper::fencing
