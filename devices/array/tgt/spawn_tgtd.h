#pragma once
// Starts a tgtd in a session of its own, so that it outlives this program. Stateless.

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/tgt_daemon.h"

namespace lunkeeper {

// Its process, a child of this one, which does not answer yet. It inherits `lock` (TgtdLock) and its
// guard (tgtd_guard.c), and writes to `output` (TgtdOutput). It has one portal, of loopback and with an
// ephemeral port, which nobody is to use. UNAVAILABLE: it cannot be started.
absl::StatusOr<pid_t> SpawnTgtd(const TgtDaemonOptions& options, const std::string& output,
                                const UniqueFd& lock);

}  // namespace lunkeeper
