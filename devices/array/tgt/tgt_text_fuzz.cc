#include <cstddef>
#include <cstdint>

#include "devices/array/tgt/tgt_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  lunkeeper::ParseTgtConnections(text);
  lunkeeper::ParseTgtStatistics(text);
  lunkeeper::ParseTgtPortals(text);
  lunkeeper::ParseTgtAccounts(text);
  lunkeeper::ParseTgtTargets(text);
  return 0;
}
