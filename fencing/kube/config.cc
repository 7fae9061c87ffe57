#include "fencing/kube/config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper::kube {
namespace {

// Where kubelet mounts the pod's token, CA and namespace ("Accessing the Kubernetes API from a Pod").
constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr char kDefaultPort[] = "443";

// An unset variable reads as an empty one; neither is of use here.
std::string EnvironmentText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<KubeConfig> InClusterConfig() {
  std::string host = EnvironmentText("KUBERNETES_SERVICE_HOST");
  const std::string port = EnvironmentText("KUBERNETES_SERVICE_PORT");
  // kubelet sets both for every pod, from the service `kubernetes` in the namespace `default`.
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "find the API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; this is no "
        "pod of a "
        "cluster, name the server and its files explicitly");
  }
  // The variable holds a bare IPv6 address in such clusters.
  if (absl::StrContains(host, ':')) host = absl::StrCat("[", host, "]");
  KubeConfig config;
  config.server = absl::StrCat("https://", host, ":", port);
  config.ca_file = absl::StrCat(kServiceAccount, "/ca.crt");
  config.token_file = absl::StrCat(kServiceAccount, "/token");
  return config;
}

absl::StatusOr<std::string> InClusterNamespace() {
  const std::string path = absl::StrCat(kServiceAccount, "/namespace");
  std::ifstream file(path);
  std::string name{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StripAsciiWhitespace(&name);
  if (!name.empty()) return name;
  return absl::FailedPreconditionError(
      absl::StrCat("read this pod's namespace from ", path, ": it is empty or cannot be read"));
}

// Strict on purpose: a path, a user or a query in the address would be ignored by everything that follows.
absl::StatusOr<ServerAddress> ParseServer(const std::string& server) {
  const absl::Status wrong =
      absl::InvalidArgumentError(absl::StrCat("API server \"", server, "\": want https://HOST[:PORT]"));
  constexpr char kScheme[] = "https://";
  if (!absl::StartsWith(server, kScheme)) return wrong;
  std::string rest = server.substr(sizeof(kScheme) - 1);
  if (absl::EndsWith(rest, "/")) rest.pop_back();
  // The colons of an IPv6 address are before the bracket, the port's is after it.
  const size_t bracket = rest.find(']');
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  ServerAddress address{rest.substr(0, colon), kDefaultPort};
  if (colon != std::string::npos) address.port = rest.substr(colon + 1);
  if (absl::StartsWith(address.host, "[") && absl::EndsWith(address.host, "]"))
    address.host = address.host.substr(1, address.host.size() - 2);
  uint32_t number = 0;
  const bool good_port = absl::SimpleAtoi(address.port, &number) && number > 0 && number < 65536;
  if (address.host.empty() || !good_port || address.host.find_first_of("/?#@[] ") != std::string::npos)
    return wrong;
  return address;
}

absl::StatusOr<std::string> ReadToken(const KubeConfig& config) {
  if (config.token_file.empty()) return std::string();
  std::ifstream file(config.token_file);
  std::string token{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StripAsciiWhitespace(&token);
  // A line break in the token would end the HTTP header and let the file's content add others.
  const bool printable =
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isgraph(c); });
  if (!token.empty() && printable) return token;
  return absl::FailedPreconditionError(
      absl::StrCat("read the token for the API server from ", config.token_file, ": ",
                   token.empty() ? "it is empty or cannot be read" : "it is no token",
                   "; is the service account's token mounted?"));
}

}  // namespace lunkeeper::kube
