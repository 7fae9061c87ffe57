#pragma once
// `lunkeeper array handover`: moves an array on Ceph from the gateway of this host to one that stands by
// (devices/array/tgt/array_handover.h).

namespace CLI {
class App;
}

namespace lunkeeper {

// Adds the command below `array`, whose own options it does not need. If it was given it runs while the
// command line is parsed, and leaves its exit code here.
void AddHandoverCommand(CLI::App* array, int* exit_code);

}  // namespace lunkeeper
