#include "fencing/agent/this_boot.h"

#include <time.h>

#include <fstream>

namespace lunkeeper {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

uint64_t MillisSinceBoot() {
  // BOOTTIME and not MONOTONIC: it also counts the time that the machine was suspended, so a machine that
  // wakes up does not repeat sequence numbers that others have seen age.
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace lunkeeper
