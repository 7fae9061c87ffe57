#pragma once
// The worker: the process that moves the data, with a fixed number of event loops in locked memory. Its
// supervisor sends it volumes and commands over a socket (control.proto, WorkerCommand), and it answers
// through the memory they share. It may be killed at any time: the supervisor starts another, which goes on
// with the same volumes.

namespace lunkeeper {

// Serves until the supervisor is gone or sends SIGKILL. `control`: the socket to the supervisor. Returns an
// exit code.
int RunWorker(int control);

}  // namespace lunkeeper
