// Any map at all: refused with an error or taken, and what is taken survives the round trip.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "devices/array/publish_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper;
  static const PublishContext keys = [] {
    Grant grant;
    grant.connection.target_chap = {"user", "secret"};
    return ToPublishContext(grant);
  }();
  PublishContext context;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  size_t at = 0;
  for (const auto& [key, value] : keys) {
    const size_t end = bytes.find('\n', at);
    context[key] = bytes.substr(at, end == std::string::npos ? end : end - at);
    if (end == std::string::npos) break;
    at = end + 1;
  }
  context["volume"] = "v";
  const auto grant = FromPublishContext(VolumeId("v"), context);
  if (grant.ok() && !FromPublishContext(VolumeId("v"), ToPublishContext(*grant)).ok()) std::abort();
  return 0;
}
