#pragma once
// How the volumes of one data path become those of another, under running I/O: for upgrades of the whole
// program. Both talk over a connection to the control socket, each step a message (control.proto):
//
//   successor                              predecessor
//      | HandOver: the versions it knows       |  takes no calls any more, and waits until none is under way
//      |-------------------------------------->|
//      |<--------------------------------------|  the parcel (inheritance.h): everything, in one message
//      | ACCEPTED                              |
//      |-------------------------------------->|  kills its worker
//      |<--------------------------------------|  YOURS
//      | starts a worker                       |  serves nothing, and waits
//      | SERVING                               |
//      |-------------------------------------->|  ends; or, in a pod, waits for a signal
//
// Exactly one of them serves, whichever dies at whatever step. A connection that ends says that its other
// side is dead: the predecessor then serves on, since it has all descriptors still; the successor, if it has
// the parcel, serves at once. So the predecessor never closes it while it lives: if it changes its mind, it
// says KEPT. The successor may close it as long as it does not serve. Neither can start a worker while one of
// the other's lives (SharedMemory::LockForWorker).
//
// Where there is nothing to hand over by (kernels before 6.9, another version of the shared memory), the
// predecessor answers FAILED_PRECONDITION and serves on.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/inheritance.h"
#include "devices/datapath/supervised_volumes.h"

namespace lunkeeper {

// The side that has the volumes. Thread-safe; `volumes` and the two descriptors outlive it.
class Predecessor {
 public:
  Predecessor(SupervisedVolumes& volumes, int lock, int listener)
      : volumes_(volumes), lock_(lock), listener_(listener) {}

  // On the thread of the successor's call. Returns when the successor serves (HandOverPhase::kDone), or
  // has died or been refused, and service goes on here.
  void HandOver(int successor, const datapath::HandOver& request) const;

 private:
  absl::StatusOr<UniqueFd> Prepare(const datapath::HandOver& request) const;
  bool GiveTo(int successor) const;
  bool AwaitService(int successor) const;
  void AwaitClose(int successor) const;

  SupervisedVolumes& volumes_;
  const int lock_, listener_;
};

struct TakenOver {
  Inheritance inheritance;
  UniqueFd predecessor;  // for ConfirmService; or to be closed
};

// The other side: asks the data path at the socket for its volumes. They are the caller's when this has
// succeeded, but accepts no calls before ConfirmService. FAILED_PRECONDITION, UNIMPLEMENTED: it cannot.
// UNAVAILABLE: nobody is there, or not now.
absl::StatusOr<TakenOver> TakeOver(const std::string& socket_path);
void ConfirmService(int predecessor);

}  // namespace lunkeeper
