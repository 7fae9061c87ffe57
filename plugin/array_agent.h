#pragma once
// `lunkeeper array`: the agent on a storage host. It owns the host's array and serves it to controllers of
// any number of clusters over mutual TLS (devices/array/remote). What concerns the whole host, such as
// accepting a restore, root does through the agent's unix socket. Started and stopped like any server
// (serve.h): everything that a crash cut short is restored before it listens; on SIGTERM, waiting requests
// are answered first.

#include "plugin/options.h"

namespace lunkeeper {

// Called once per process, early in main(). The exit code.
int RunArrayAgent(const ArrayAgentOptions& options);

}  // namespace lunkeeper
