// An API server in memory as a program, for tests whose controllers are processes of their own: a FakeApi,
// and reviews of tokens that say themselves of whom they are.
//
//   api_server NODE     pods that are made anew run on NODE
//
// It prints where it is, as JSON, and serves until its standard input ends.

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

// The token's payload has `account` and `node`.
bool ReviewToken(kube::Exchange& exchange) {
  if (exchange.path != "/apis/authentication.k8s.io/v1/tokenreviews") return false;
  Json review = kube::ParseJson(exchange.body).value_or(Json::object());
  const std::vector<std::string> parts = absl::StrSplit(TextAt(review, {"spec", "token"}), '.');
  std::string payload;
  const bool good = parts.size() == 3 && absl::WebSafeBase64Unescape(parts[1], &payload);
  const Json claims = kube::ParseJson(payload).value_or(Json::object());
  const Json nodes = Json::array({TextAt(claims, {"node"})});
  review["status"] = {{"authenticated", good},
                      {"audiences", FieldAt(review, {"spec", "audiences"})},
                      {"user",
                       {{"username", TextAt(claims, {"account"})},
                        {"extra", {{"authentication.kubernetes.io/node-name", nodes}}}}}};
  exchange.Reply(review);
  return true;
}

int Serve(const std::string& node) {
  FakeApi api([](const std::string&) {}, ReviewToken);
  api.RunPodsOn(node);
  const kube::KubeConfig config = api.Config();
  std::cout << kube::ToText({{"server", config.server}, {"ca", config.ca_file}}) << std::endl;
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace
}  // namespace lunkeeper::fencing

int main(int count, char** arguments) {
  if (count == 2) return lunkeeper::fencing::Serve(arguments[1]);
  std::cerr << "usage: api_server NODE\n";
  return 2;
}
