#pragma once
// Runs a server: the services of its mode over its backends, /metrics, /healthz and /readyz, until SIGTERM or
// SIGINT.
//
// It first serves the pages (alive, not ready), then opens the backends, which may take a while after a
// crash, then takes calls. On the signal it takes no more calls, lets running ones finish for `stop_seconds`,
// and returns 0; calls that outlast even that are left where they are, as a crash would leave them, since
// each may be repeated.

#include <functional>

#include "absl/status/statusor.h"
#include "plugin/backends.h"
#include "plugin/options.h"

namespace lunkeeper {

// Called once per process, early in main(). The exit code: 0, or 1 after an error that was logged.
int Serve(const ServeOptions& options, const std::function<absl::StatusOr<Backends>()>& open);

}  // namespace lunkeeper
