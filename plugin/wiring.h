#pragma once
// The real backends of `lunkeeper serve`: tgt for the array, the user-space data path for devices. The only
// place that names them. Called once, from main's thread.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/array/tgt/tgt_array.h"
#include "plugin/backends.h"
#include "plugin/options.h"

namespace lunkeeper {

// Makes a folder, if it is not there yet, for root alone. Its parent is there.
absl::Status MakeFolder(const std::string& path);

// tgt's array on this machine. `backends` owns it then, and is ready when it is; which of its views becomes
// the process's array, the caller decides.
absl::StatusOr<std::shared_ptr<TgtArray>> OpenPool(const ServeOptions& options, Backends* backends);

// Begins to watch the gateways, where any can be asked for (Backends::ask_gateways).
void WatchGateways(Backends* backends);

// Opens what the mode needs; see the parts' own factories for how each can fail. May take a while: it
// restores what a crash cut short.
absl::StatusOr<Backends> OpenBackends(const ServeOptions& options);

}  // namespace lunkeeper
