#pragma once
// The real backends of `lunkeeper serve`: tgt for the array, the user-space data path for devices. The only
// place that names them.

#include "absl/status/statusor.h"
#include "plugin/backends.h"
#include "plugin/options.h"

namespace lunkeeper {

// Opens what the mode needs; see the parts' own factories for how each can fail. May take a while: it puts
// back what a crash cut short.
absl::StatusOr<Backends> OpenBackends(const ServeOptions& options);

}  // namespace lunkeeper
