#pragma once
// Actions as one readable line each, for golden scenarios, the simulator's traces and logs.

#include <string>

#include "fencing/core/action.h"

namespace lunkeeper::fencing {

std::string Describe(const Action& action);
std::string Describe(const VolumesByArray& volumes);
// "12.500"
std::string Seconds(Span time);

}  // namespace lunkeeper::fencing
