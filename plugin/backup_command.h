#pragma once
// `lunkeeper backup`: copies the pool of a running array, and checks such a copy (devices/array/tgt/
// pool_backup.h).

namespace CLI {
class App;
}

namespace lunkeeper {

// Adds the commands; one that was given runs while the command line is parsed, and leaves its exit code here.
void AddBackupCommand(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
