#pragma once
// `lunkeeper datapath`: the user-space iSCSI data path of a machine. Two processes:
//
//  - The supervisor owns the control socket, and the volumes' FUSE descriptors, loop devices and secrets.
//    It moves no data.
//  - The worker, its child, logs in and moves the data. When it dies, hangs or is upgraded, the supervisor
//    replaces it under running file systems, without an I/O error (Linux 6.9 and later; before, its volumes
//    fail and have to be staged again).
//
// Restarts of the plugin do not touch it. Nothing of it outlives the supervisor but block devices that are in
// use: their I/O fails, and a new supervisor at the same socket shows them as failed until they are let go.
//
// SIGTERM or SIGINT: no new volumes; the supervisor ends once none is attached, or a successor has them. A
// second SIGINT ends it at once, and I/O of its volumes fails. SIGTERM never does, however often it comes:
// a kubelet or runtime that is restarted sends it again.
//
// Another version of the program takes the volumes over with --take-over, under running I/O (hand_over.h).

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace CLI {
class App;
}

namespace lunkeeper {

// What the command line asks for: to be the data path, or something of the one that runs at the socket.
enum class DatapathCommand { kRun, kList, kUpgrade, kReady, kStop };

struct DatapathOptions {
  DatapathCommand command = DatapathCommand::kRun;
  std::string socket = "/run/lunkeeper/datapath.sock";  // its directory is made if need be
  uint64_t pool_bytes = uint64_t{64} << 20;             // locked memory for data under way
  uint32_t threads = 0;                                 // event loops; 0: half of the processors, 1 to 4
  // A target that is away longer fails its volumes for good.
  absl::Duration replacement_timeout = absl::Seconds(120);
  // A worker that is silent longer is replaced; on a kernel before 6.9, where all its volumes fail with it,
  // after 120 s at least.
  absl::Duration hang_timeout = absl::Seconds(10);
  std::string worker_binary;  // what `upgrade` starts; empty: the path this program was started by
  // Where a data path serves at the socket: become its successor, or wait for its end (succession.h).
  bool take_over = false;
  std::string ready_file;                               // is there while this data path serves; empty: none
  std::string log_level = "info", log_format = "text";  // as of `serve`
  bool resend = true;                                   // false: do as on a kernel before 6.9, for tests
  int worker_socket = -1;  // set in the worker only: the socket to its supervisor
};

// Adds the options and the subcommands (list, upgrade, stop) to a command line's `datapath` subcommand.
void AddDatapathOptions(CLI::App* command, DatapathOptions* options);

// Does what options.command says; as the data path, it runs until a signal or a call stops it. Returns the
// process's exit code.
int RunDatapath(const DatapathOptions& options);

// For `serve`: OK at once if a data path listens at options.socket; otherwise starts one, in a session of its
// own so that it outlives this process, and waits until it listens. Safe to call from several processes at
// the same time.
absl::Status StartDatapathIfAbsent(const DatapathOptions& options, absl::Duration timeout);

// Whether a data path was killed that served at the socket, and no other one does: its socket is still there.
bool IsDatapathKilled(const std::string& socket_path);

}  // namespace lunkeeper
