#pragma once
// Why a NodeFence was asked for, where no person made it: an administrator's taint; or a fence of the node's
// machine, which a person put at an array or asked for with the NodeFence of another instance.

namespace lunkeeper::fencing {

inline constexpr char kByTaint[] = "the out-of-service taint";
inline constexpr char kByMachine[] = "the fence of its machine";

}  // namespace lunkeeper::fencing
