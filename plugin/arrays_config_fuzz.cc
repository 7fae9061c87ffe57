// Whatever is in the arrays file: it is taken whole, or refused with a line.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "plugin/arrays_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = lunkeeper::ParseArrays(std::string(reinterpret_cast<const char*>(data), size));
  if (!entries.ok()) {
    if (entries.status().message().substr(0, 5) != "line ") std::abort();
    return 0;
  }
  if (entries->empty()) std::abort();
  for (const lunkeeper::ArrayEntry& entry : *entries) {
    if (entry.remote.name.empty() || entry.remote.tls.key.front() != '/') std::abort();
  }
  return 0;
}
