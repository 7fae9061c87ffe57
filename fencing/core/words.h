#pragma once
// Who asked for a NodeFence, where it was an administrator's taint.

namespace lunkeeper::fencing {

inline constexpr char kByTaint[] = "the out-of-service taint";

}  // namespace lunkeeper::fencing
