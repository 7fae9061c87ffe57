#pragma once
// `lunkeeper volumes`, `snapshots`, `nodes` and `arrays`: lists for an operator, of what a controller's
// arrays have, with the names that Kubernetes gives to it where the command runs in a pod of a cluster. For
// people, or with `--output json` for scripts. The exit code is 1, with the reason on standard error, where
// an array does not answer: what it has is missing in the list. One thread.

#include "plugin/admin_client.h"

namespace lunkeeper {

void AddListCommands(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper
