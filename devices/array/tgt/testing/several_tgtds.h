#pragma once
// An array of several tgtds, for tests of what they do together. Needs root.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "devices/array/tgt/sqlite.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {

inline constexpr int kTgtds = 3;
inline const NodeId kNode("db.0000000000000001"), kOther("web.0000000000000002");

// A volume that a node has, and its session with it.
struct Used {
  VolumeId volume;
  Connection connection;
  std::unique_ptr<PlainInitiator> session = nullptr;
};

struct Several : ArrayFixture {
  explicit Several(int tgtds = kTgtds) : ArrayFixture("", kTgtds) {
    options.tgtds = tgtds;
    REQUIRE(Open() == absl::OkStatus());
  }
  Used Use(const std::string& name, const NodeId& node = kNode) {
    const auto view = Cluster();
    const VolumeId volume = view->volumes().CreateVolume(Spec(name, 16)).value().id;
    const auto grant = view->grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    Used used{.volume = volume, .connection = grant->connection};
    used.session = PlainInitiator::Login(used.connection).value();
    REQUIRE(used.session->Write(1, 'x'));
    return used;
  }
  std::vector<Used> UseSome(int count, const NodeId& node = kNode) {
    std::vector<Used> used;
    for (int i = 0; i < count; ++i) used.push_back(Use(absl::StrCat(node.value(), "-", i), node));
    return used;
  }
  int PortOf(int number) const {
    int port = 0;
    REQUIRE(absl::SimpleAtoi(options.portals[0].substr(options.portals[0].rfind(':') + 1), &port));
    return port + number;
  }
  // Which tgtd a connection leads to.
  int TgtdOf(const Connection& connection) const {
    for (int number = 0; number < kTgtds; ++number)
      if (absl::EndsWith(connection.portal, absl::StrCat(":", PortOf(number)))) return number;
    return -1;
  }
  pid_t Tgtd(int number) const { return TgtdProcess(options.control_port + number); }
  // How many of the tgtds have this target.
  int CountServers(const Connection& connection) const {
    int servers = 0;
    for (int number = 0; number < kTgtds; ++number) {
      if (Tgtd(number) == 0) continue;
      const auto targets = TgtClient(options.control_port + number).ListTargets();
      for (const TgtTarget& target : targets.value()) servers += target.name == connection.target.value();
    }
    return servers;
  }
  absl::Status Fence(Array& view, const NodeId& node) {
    const auto term = view.fences().BeginTerm("leader");
    return view.fences().FenceNode(*term, {.node = node, .all_volumes = true}).status();
  }
  void ChangeCatalogue(const std::string& sql) {
    const auto database =
        SqlDatabase::Open(options.pool_dir + "/catalogue.db", SqlDatabase::Mode::kReadWrite);
    REQUIRE((*database)->Script(sql.c_str()) == absl::OkStatus());
  }
};

}  // namespace lunkeeper::testing
