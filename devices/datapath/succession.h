#pragma once
// Who serves at a socket, one after the other: a supervisor's life from the side of the process that runs it.
//
//   no other there                                  -> serves
//   another there, without --take-over              -> ALREADY_EXISTS
//   another there, with it                          -> takes over, or waits until that is possible or it ends
//   a successor has taken over, without --take-over -> the process ends
//   the same, with it                               -> waits until the successor has ended: in a pod whose
//                                                      container would be started again at once
//
// Not thread-safe: for the program's main thread, before it starts any other.

#include <signal.h>

#include "absl/status/status.h"
#include "devices/datapath/datapath.h"

namespace lunkeeper {

// Runs until told to stop (datapath.h says by what), also while it waits.
absl::Status ServeInTurn(const DatapathOptions& options);

// For this thread and all that it starts later: SIGTERM and SIGINT wait until they are asked for.
sigset_t BlockStopSignals();

}  // namespace lunkeeper
