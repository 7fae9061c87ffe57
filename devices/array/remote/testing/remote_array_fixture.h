#pragma once
// What the tests of the remote array share: certificates, an agent over a fake array, and a client of it.
// Made and used by one test at a time.

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "devices/array/remote/remote_array.h"
#include "devices/array/remote/testing/test_agent.h"

namespace lunkeeper::testing {

inline const NodeId kNodeA("a.0000000000000001");
inline const NodeId kNodeB("b.0000000000000002");
inline constexpr absl::Duration kLong = absl::Seconds(30);

// Certificates are made once for all tests.
inline const TestCa& Ca() {
  static const TestCa ca;
  return ca;
}
inline const TlsFiles& AgentTls() {
  static const TlsFiles files = Ca().Issue("agent", kAgentNames);
  return files;
}
inline const TlsFiles& ControllerTls() {
  static const TlsFiles files = Ca().Issue("controller", kControllerNames);
  return files;
}

inline std::unique_ptr<RemoteArray> Connect(const RemoteArrayOptions& options) {
  auto made = MakeRemoteArray(options);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

// One agent over a fake array, and its client.
struct RemoteArrayFixture {
  TestAgent agent{AgentTls()};
  std::unique_ptr<RemoteArray> array = Connect(agent.Options(ControllerTls()));
  FakeArray& fake = agent.Of("c1");

  VolumeId MustCreate(const std::string& name) {
    VolumeSpec spec;
    spec.name = name;
    spec.size_bytes = 1 << 20;
    const auto made = array->volumes().CreateVolume(spec);
    INFO(made.status());
    REQUIRE(made.ok());
    return made->id;
  }
};

inline GrantRequest For(const VolumeId& volume, const NodeId& node) {
  GrantRequest request;
  request.volume = volume;
  request.node = node;
  return request;
}

}  // namespace lunkeeper::testing
