#pragma once
// `--store`: where an array keeps its volumes. Used while the command line is read, on one thread.

#include <CLI/CLI.hpp>

#include "devices/array/tgt/ceph_options.h"

namespace lunkeeper {

// `ceph` is filled while CLI parses, and outlives that.
void AddStoreOptions(CLI::App* command, CephOptions* ceph);

}  // namespace lunkeeper
