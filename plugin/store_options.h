#pragma once
// Where an array keeps its volumes, and how much of that it promises to whom. Used while the command line is
// read, on one thread.

#include <CLI/CLI.hpp>

#include "devices/array/tgt/ceph_options.h"
#include "devices/array/tgt/pool_room.h"

namespace lunkeeper {

// `ceph` is filled while CLI parses, and outlives that.
void AddStoreOptions(CLI::App* command, CephOptions* ceph);
// As AddStoreOptions; `limits`.
void AddLimitOptions(CLI::App* command, PoolLimits* limits);

}  // namespace lunkeeper
