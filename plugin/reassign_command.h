#pragma once
// `lunkeeper reassign`, on the storage host or in the array's pod: gives what one cluster has of the array to
// another (devices/array/tgt/reassignment.h). For a cluster that was made again under another name. One
// thread.

namespace CLI {
class App;
}

namespace lunkeeper {

void AddReassignCommand(CLI::App* app, int* exit_code);

}  // namespace lunkeeper
