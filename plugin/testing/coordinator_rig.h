#pragma once
// Controllers with their coordinator services, over TLS on loopback and one fake array, for tests. Not
// thread-safe itself.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test_host.h"
#include "base/tls.h"
#include "devices/array/arrays.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/agent/coordinator_grant_source.h"
#include "fencing/agent/replicas.h"
#include "fencing/coordinator/coordinator_service.h"
#include "fencing/coordinator/testing/static_token_reviewer.h"
#include "plugin/server.h"
#include "plugin/testing/certificates.h"
#include "plugin/testing/recording_sink.h"

namespace lunkeeper {

class Controller {
 public:
  Controller(GrantStore& grants, Arrays& arrays, TokenReviewer& reviewer, const std::string& certificate_stem,
             const ConnectionLimits& connections, const CoordinatorLimits& limits)
      : authenticator(reviewer, {kTestAudience, kTestAccount}),
        coordinator(MakeCoordinatorService(grants, arrays, authenticator, &sink, limits)) {
    const auto tls = TlsServer(certificate_stem + ".crt", certificate_stem + ".key");
    REQUIRE(tls.ok());
    auto started = Server::Start({.endpoint = "127.0.0.1:0", .credentials = *tls, .connections = connections},
                                 {coordinator->service()}, &metrics);
    REQUIRE(started.ok());
    server = *std::move(started);
    port = static_cast<uint16_t>(server->port());
  }
  ~Controller() { Kill(); }

  // Its connections end in the middle of whatever they were doing.
  void Kill() {
    if (server == nullptr) return;
    server->Stop(absl::ZeroDuration());
    server.reset();
  }

  Metrics metrics{"controller"};
  RecordingSink sink;
  Authenticator authenticator;
  std::unique_ptr<CoordinatorService> coordinator;
  std::unique_ptr<Server> server;
  uint16_t port = 0;
};

class CoordinatorRig {
 public:
  CoordinatorRig() {
    reviewer.AddNode("token-1", "node-1");
    WriteToken("token-1");
    authority.Issue(folder / "coordinator", "IP:127.0.0.1");
  }
  ~CoordinatorRig() { controllers.clear(); }

  // All nodes of a test come from one address.
  static ConnectionLimits ManyNodes() {
    return {.per_address = 5000, .new_at_once = 5000, .new_per_second = 5000};
  }
  Controller& AddController(const ConnectionLimits& connections = ManyNodes(),
                            const CoordinatorLimits& limits = {}) {
    return *controllers.emplace_back(
        std::make_unique<Controller>(array, *arrays, reviewer, folder / "coordinator", connections, limits));
  }
  void WriteToken(const std::string& token, const std::string& name = "token") const {
    std::ofstream(folder / (name + ".new")) << token << '\n';
    std::filesystem::rename(folder / (name + ".new"), folder / name);
  }
  std::unique_ptr<Replicas> Connect(const std::vector<uint16_t>& ports, const std::string& token = "token") {
    ReplicaOptions options;
    for (const uint16_t port : ports) options.addresses.push_back(absl::StrCat("127.0.0.1:", port));
    const auto tls = TlsClient(authority.certificate());
    REQUIRE(tls.ok());
    options.credentials = *tls;
    options.token_file = folder / token;
    return std::make_unique<Replicas>(options);
  }
  VolumeId MakeVolume(const std::string& name) {
    VolumeSpec spec;
    spec.name = name;
    spec.size_bytes = 64 << 20;
    const auto volume = array.CreateVolume(spec);
    REQUIRE(volume.ok());
    return volume->id;
  }
  // Some other node takes the volume.
  void Occupy(const VolumeId& volume) {
    REQUIRE(array.AcquireGrant({volume, other, Access::kExclusive}, absl::ZeroDuration()).ok());
  }
  void Vacate(const VolumeId& volume) {
    REQUIRE(array.ReleaseGrant(volume, other, GrantOwner::kNode, kAnyGeneration).ok());
  }

  const testing::TempDir temporary;
  const std::filesystem::path folder = temporary.path();
  const NodeId node{"node-1.0123456789abcdef"};
  const NodeId other{"node-2.fedcba9876543210"};
  TestAuthority authority{folder, "authority"};
  FakeArray array;
  std::unique_ptr<Arrays> arrays =
      MakeOneArray("fake", std::shared_ptr<Array>(std::shared_ptr<void>(), &array));
  StaticTokenReviewer reviewer;
  std::vector<std::unique_ptr<Controller>> controllers;
};

}  // namespace lunkeeper
