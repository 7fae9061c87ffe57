#pragma once
// Checks of one option's text that several groups of options share, as CLI11 wants them: each returns what is
// wrong, or an empty text. Pure.

#include <string>

namespace lunkeeper {

// Relative paths would depend on where systemd or a container runtime starts the process.
std::string IsAbsolutePath(const std::string& value);

}  // namespace lunkeeper
