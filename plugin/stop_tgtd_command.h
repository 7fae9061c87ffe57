#pragma once
// `lunkeeper stop-tgtd`: ends the tgtd of a pool whose agent does not run (stop_tgtd.h).

namespace CLI {
class App;
}

namespace lunkeeper {

// Adds the command; if it was given it runs while the command line is parsed, and leaves its exit code here.
void AddStopTgtdCommand(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
