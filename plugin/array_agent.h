#pragma once
// `lunkeeper array`: the agent on a storage host. It owns the host's array and serves it to controllers of
// any number of clusters over mutual TLS (devices/array/remote). What concerns the whole host, as accepting a
// restore, is asked on its own unix socket, by root. Started and stopped like any server (serve.h):
// everything that a crash cut short is put back before it listens; on SIGTERM, requests that wait are sent
// away first.

#include "plugin/options.h"

namespace lunkeeper {

// Called once per process, early in main(). The exit code.
int RunArrayAgent(const ArrayAgentOptions& options);

}  // namespace lunkeeper
