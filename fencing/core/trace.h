#pragma once
// Actions as one readable line each, for golden scenarios, the simulator's traces and logs.

#include <string>

#include "fencing/core/action.h"

namespace lunkeeper::fencing {

std::string DescribeAction(const Action& action);
std::string DescribeVolumes(const VolumesByArray& volumes);
// "12.500"
std::string FormatSeconds(Span time);

}  // namespace lunkeeper::fencing
