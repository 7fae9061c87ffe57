#pragma once
// Checks of one option's text that several groups of options share, as CLI11 wants them: each returns what is
// wrong, or an empty text. Pure.

#include <cstddef>
#include <functional>
#include <string>

namespace lunkeeper {

// Relative paths would depend on where systemd or a container runtime starts the process.
std::string IsAbsolutePath(const std::string& value);
// Names that become part of an iSCSI target's name (RFC 3720, section 3.2.6: no upper case), of a file and of
// a metric's label.
std::function<std::string(const std::string&)> PlainName(size_t longest);

}  // namespace lunkeeper
