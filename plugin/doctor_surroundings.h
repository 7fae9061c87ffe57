#pragma once
// The machine that `lunkeeper doctor` runs on.

#include "plugin/doctor.h"

namespace lunkeeper {

// A connection is tried for two seconds, and so are packets of full size.
Surroundings RealSurroundings();

}  // namespace lunkeeper
