#pragma once
// Sockets in the file system. Thread-safe.

#include <string>

namespace lunkeeper {

// Whether a process listens on the unix socket at this path. A socket file outlives its process, so only a
// connect can tell; it never blocks. False for a path too long for a socket.
bool IsListening(const std::string& path);

}  // namespace lunkeeper
