#pragma once
// This machine's name, or the pod's; cut if it is very long. Thread-safe, never fails.

#include <unistd.h>

#include <string>

namespace lunkeeper {

inline std::string HostName() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lunkeeper
