#include "devices/array/tgt/tgt_text.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

TEST_CASE("connections are read with their sessions") {
  const auto connections = ParseTgtConnections(
      "Session: 7\n    Connection: 0\n        Initiator: iqn.x:a\n        IP Address: 127.0.0.1\n"
      "Session: 9\n    Connection: 2\n        Initiator: iqn.x:b\n");
  CHECK(connections == std::vector<TgtConnection>{{7, 0, "iqn.x:a", "127.0.0.1"}, {9, 2, "iqn.x:b", ""}});
  CHECK(ParseTgtConnections("").empty());
}

TEST_CASE("statistics are read of LUN 1 alone, and of whole lines alone") {
  const auto statistics = ParseTgtStatistics(
      "tgt lun sid rd_subm(bytes,cmds) rd_done(bytes,cmds) wr_subm(bytes,cmds) wr_done(bytes,cmds) errs\n"
      "  5   0   3            0      0            0      0            0      0            0      0    0\n"
      "  5   1   3         4096      9         2048      8          600      7          512      6    0\n"
      "  5   1   3         4096\n"
      "99999999999  1   3   0 0 0 0 0 0 0 0 0\n");
  REQUIRE(statistics.size() == 1);
  CHECK(statistics[0] == TgtStatistics{5, 3, 8, 6, 2048, 512});
}

TEST_CASE("portals are read without their group") {
  CHECK(ParseTgtPortals("Portal: 127.0.0.1:3260,1\nPortal: [::1]:3261,1\n") ==
        std::vector<std::string>{"127.0.0.1:3260", "[::1]:3261"});
}

TEST_CASE("accounts are read without their heading") {
  CHECK(ParseTgtAccounts("Account list:\n    grant-4\n    target-00ff\n") ==
        std::vector<std::string>{"grant-4", "target-00ff"});
  CHECK(ParseTgtAccounts("").empty());
}

TEST_CASE("a target is open when it lets somebody in") {
  const auto targets = ParseTgtTargets(
      "Target 4: iqn.x:array:v:4\n    LUN information:\n        LUN: 0\n    Account information:\n        "
      "grant-4\n"
      "    ACL information:\n        iqn.x:node\n"
      "Target 5: iqn.x:array:v:5\n    Account information:\n    ACL information:\n");
  CHECK(targets == std::vector<TgtTarget>{{4, "iqn.x:array:v:4", true, 1}, {5, "iqn.x:array:v:5", false, 0}});
}

}  // namespace
}  // namespace lunkeeper
