#include "fencing/kube/config.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

TEST_CASE("a configuration that cannot be right is refused") {
  KubeConfig config;
  config.ca_file = "/ca";
  for (const char* server : {"", "http://10.0.0.1", "https://", "https://a:0", "https://a:70000",
                             "https://a:x", "https://a/path", "https://u@a", "https://[::1"}) {
    config.server = server;
    CHECK(absl::IsInvalidArgument(MakeKubeClient(config).status()));
  }
  for (const char* server : {"https://a", "https://10.0.0.1:6443/", "https://[fd00::1]:6443"}) {
    config.server = server;
    CHECK(MakeKubeClient(config).ok());
  }
  CHECK(ParseServer("https://[fd00::1]:6443")->host == "fd00::1");
  CHECK(ParseServer("https://kubernetes.default.svc")->port == "443");
  config.certificate_file = "/cert";
  CHECK(absl::IsInvalidArgument(MakeKubeClient(config).status()));
}

TEST_CASE("in a pod the server is found; outside of one that is said") {
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  CHECK(absl::IsFailedPrecondition(InClusterConfig().status()));
  ::setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  ::setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
  CHECK(InClusterConfig()->server == "https://[fd00::1]:6443");
  CHECK(InClusterConfig()->token_file == "/var/run/secrets/kubernetes.io/serviceaccount/token");
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  ::unsetenv("KUBERNETES_SERVICE_PORT");
}

}  // namespace lunkeeper::kube
