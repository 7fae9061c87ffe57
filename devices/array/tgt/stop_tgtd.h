#pragma once
// Ends the tgtds that serve a pool whose agent does not run: the last step before the pool's file system is
// unmounted, repaired or moved to another host. An agent that stops leaves its tgtds serving, so that an
// upgrade costs no session; so nothing else does this.
//
// What initiators have written is in the files, or in the page cache, which is written back here: the next
// agent goes on with it, also of another mount or on another host (cache_id.h). No agent can begin with the
// pool meanwhile. Needs root. May be repeated.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

struct StopTgtdRequest {
  std::string pool_dir;
  bool with_sessions = false;  // also if nodes have volumes; the I/O of their nodes waits then, and may fail
  std::string boot_id_path = "/proc/sys/kernel/random/boot_id";
};

// OK: no tgtd serves the pool, and all is on its disk. NOT_FOUND: the directory is no pool.
// FAILED_PRECONDITION: an agent has the pool open, or nodes have volumes, which the message names, or the
// tgtd cannot be seen from here. UNAVAILABLE: tgtd does not say whether volumes are in use, or cannot be
// asked from here. DEADLINE_EXCEEDED: it was killed, and has not ended: its disk does not answer. Another
// error: the disk did not take what was written.
absl::Status StopPoolTgtd(const StopTgtdRequest& request, absl::Duration within);

// The same for an agent that has the pool's lock; also if nodes have volumes. OK: no tgtd serves the pool.
// UNAVAILABLE, DEADLINE_EXCEEDED: as above; FAILED_PRECONDITION: a tgtd cannot be seen from here.
absl::Status KillTgtds(const std::string& pool_dir, absl::Duration within);

// The same for an agent whose own threads would miss a tgtd, and start it again: none is started while the
// result lives. What could not be ended within that time is left.
std::vector<UniqueFd> KillTgtdsForGood(const std::string& pool_dir, absl::Duration within);

}  // namespace lunkeeper
