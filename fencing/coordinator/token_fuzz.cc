// Any bytes at all as a token, and as what a token claims: never a crash, and an end only where a whole
// number says it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fencing/coordinator/kube_token_reviewer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)lunkeeper::ExpiryOf(bytes);
  const auto expiry = lunkeeper::ExpiryOf(absl::StrCat("e30.", absl::WebSafeBase64Escape(bytes), ".x"));
  if (!expiry.ok()) return 0;
  const auto claims = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!claims.is_object() || !claims.at("exp").is_number_integer()) std::abort();
  return 0;
}
