#pragma once
// The flags of failover, of a controller with a coordinator. docs/failover.md explains each. Nothing fails: a
// value that cannot be is refused when the command line is read.

#include "plugin/options.h"

namespace lunkeeper {

// The flags write to `flags`, which outlives the command.
void AddFailoverOptions(CLI::App* command, FailoverFlags* flags);
// The flags that the file of settings may have, too. They write to `settings`, which outlives the command.
void AddFailoverSettings(CLI::App* command, fencing::Settings* settings);

}  // namespace lunkeeper
