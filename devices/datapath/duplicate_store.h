#pragma once
// The process that keeps duplicates of a supervisor's descriptors (duplicates.h): the node plugin, since each
// of the two survives the other's restart. It listens beside the data path's control socket:
//
//   supervisor                             store
//      | KEEP, with the parcels              |
//      |------------------------------------>|  keeps them in the place of those it had
//      |        (the connection stays)       |
//      X killed                              |  the connection ends: from now on for kKeptFor at most
//   the next one                             |
//      | ASK                                 |
//      |------------------------------------>|
//      |<------------------------------------|  KEEP, with the parcels, which it keeps on keeping
//      | KEEP, with parcels of its own       |
//      |------------------------------------>|
//
// While a supervisor is dead and its duplicates are kept, I/O of the volumes waits. So does all that depends
// on it: the data path does not count as dead (IsDatapathDead). If no other one comes in time, I/O fails, as
// it does where nobody keeps duplicates.
//
// What is kept costs the store two descriptors, however many volumes there are.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// A thread. Destroying it ends the keeping. Thread-safe.
class DuplicateStore {
 public:
  virtual ~DuplicateStore() = default;
  // Volumes of a supervisor that is gone wait for the next one.
  virtual bool IsWaiting() const = 0;
};

// How long a supervisor may be gone: kubelet starts a container that keeps ending only every five minutes,
// and the next one needs a moment. Where none will come, unmounts on that node wait as long.
constexpr absl::Duration kKeptFor = absl::Minutes(6);

// Starts at once; where its socket cannot be made (another store is there), it is tried again each second.
std::unique_ptr<DuplicateStore> StartDuplicateStore(const std::string& datapath_socket,
                                                    absl::Duration kept_for = kKeptFor);

// A supervisor's side of it. Neither waits for a store that hangs, but AskForDuplicates for a moment.

// The connection, which ends when the store dies or keeps another supervisor's. UNAVAILABLE: there is none.
absl::StatusOr<UniqueFd> ConnectToDuplicateStore(const std::string& datapath_socket);
absl::Status SendDuplicates(int store, const std::vector<int>& parcels);
bool IsDuplicateStoreGone(int store);
// The parcels of a supervisor that died; empty: there are none. DEADLINE_EXCEEDED: the store hangs. Then
// nobody can say whether volumes are kept, and their I/O waits, so who touched them would hang, too.
absl::StatusOr<std::vector<UniqueFd>> AskForDuplicates(const std::string& datapath_socket);

}  // namespace lunkeeper
