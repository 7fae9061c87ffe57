#pragma once
// The words of a NodeFence's record which more than one part of the core writes or reads.

namespace lunkeeper::fencing {

inline constexpr char kByTaint[] = "the out-of-service taint";  // requested_by
inline constexpr char kPhaseFencing[] = "fencing";
inline constexpr char kPhaseAsking[] = "asking its pods to leave";
inline constexpr char kPhaseUnknown[] = "refused: there is no such node";

}  // namespace lunkeeper::fencing
