#pragma once
// The steps of a hand-over, on the side of the data path that has the volumes (hand_over.h has the protocol).

namespace lunkeeper {

// How far this data path has come with handing its volumes over (hand_over.h).
//
//   kNone ---> kAsked -----------------> kStopped ---> kGiven ---> kDone
//     ^        |    |                     ^  |           |
//     |        |    +---> kUrged ---------+  |           |
//     |        |            |                |           |
//     +--------+------------+----------------+-----------+   the successor refuses, fails or dies
//
// From kNone it goes to kEnded, and from any other to kDone, when this data path itself is ended.
enum class HandOverPhase {
  kNone,
  kAsked,    // new calls wait; the worker serves
  kUrged,    // so do they, and calls that wait for a login end
  kStopped,  // so do they, and there is no worker
  kGiven,    // they are the successor's until it dies, and so is the socket
  kDone,     // a successor serves, or a hand-over was cut short: this process ends, and answers nobody
  kEnded,    // this process ends, and there is no successor: its last calls have their answers
};

}  // namespace lunkeeper
