#pragma once
// The operator's commands: `lunkeeper status`, `fence`, `unfence`, `accept-restore`. Each makes one call to a
// running server's socket and prints its answer for people to read; the exit code is 0, or 1 with the reason
// on standard error.

namespace CLI {
class App;
}

namespace lunkeeper {

// Adds the commands; the one that was given runs while the command line is parsed, and leaves its exit code
// here.
void AddAdminCommands(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
