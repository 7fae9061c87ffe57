// A client's right and cluster are one DNS name in its certificate, such as controller.CLUSTER followed by
// the domain below. Other names in the certificate do not matter. Two names of the domain are refused, for
// then each call would have to say for which of two clusters it is made.
#include "devices/array/remote/rights.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace lunkeeper {
namespace {

constexpr char kDomain[] = ".cluster.lunkeeper.io";
constexpr size_t kLongestCluster = 63;  // a DNS label, RFC 1035

std::optional<Right> RightNamed(absl::string_view name) {
  if (name == "controller") return Right::kController;
  if (name == "reader") return Right::kReader;
  return std::nullopt;
}

std::optional<Caller> Parse(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kDomain)) return std::nullopt;
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos) return std::nullopt;
  const auto right = RightNamed(name.substr(0, dot));
  const absl::string_view cluster = name.substr(dot + 1);
  const bool plain = std::all_of(cluster.begin(), cluster.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
  if (!right.has_value() || !plain || cluster.empty() || cluster.size() > kLongestCluster)
    return std::nullopt;
  return Caller{ClusterId(std::string(cluster)), *right};
}

}  // namespace

absl::StatusOr<Caller> CallerNamed(const std::vector<std::string>& dns_names) {
  std::vector<std::string> ours;
  std::copy_if(dns_names.begin(), dns_names.end(), std::back_inserter(ours),
               [](const std::string& name) { return absl::EndsWith(name, kDomain); });
  if (ours.size() == 1) {
    if (const auto caller = Parse(ours.front()); caller.has_value()) return *caller;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the client's certificate names ", ours.empty() ? "no cluster" : absl::StrJoin(ours, ", "),
                   ": make it with exactly one DNS name controller.CLUSTER", kDomain, " or reader.CLUSTER",
                   kDomain, ", CLUSTER being 1 to 63 of a-z, 0-9 and -"));
}

absl::StatusOr<Caller> CallerOf(const grpc::ServerContext& context) {
  std::vector<std::string> names;
  for (const auto& name : context.auth_context()->FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME))
    names.emplace_back(name.data(), name.size());
  return CallerNamed(names);
}

}  // namespace lunkeeper
