#pragma once
// The settings that a script may change. Throws std::runtime_error if there is no such setting or value.

#include <string>

#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

void SetSetting(const std::string& name, const std::string& value, Settings& settings);

}  // namespace lunkeeper::fencing
