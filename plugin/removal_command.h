#pragma once
// `lunkeeper remove-array` and `add-array`: an operator takes an array out of use, and back.
// The controller that is asked stores it; then the command follows until no node whose heartbeats arrive
// has anything of the array left. Killed at any point, it may be repeated. One thread.

#include <CLI/CLI.hpp>

namespace lunkeeper {

void AddRemovalCommands(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
