#include "fencing/kube/quantity.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lunkeeper::kube {

std::optional<double> ParseQuantity(const std::string& text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50},
      {"Ei", 0x1p60}, {"m", 1e-3},    {"k", 1e3},     {"M", 1e6},     {"G", 1e9},
      {"T", 1e12},    {"P", 1e15},    {"E", 1e18}};
  absl::string_view number = text;
  double unit = 1, value = 0;
  for (const auto& [name, factor] : kUnits)
    if (unit == 1 && absl::ConsumeSuffix(&number, name)) unit = factor;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value)) return std::nullopt;
  return value * unit;
}

}  // namespace lunkeeper::kube
