#include "node/stored_node_id.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using testing::TempDir;

TEST_CASE("a node keeps its identity, and another host has another") {
  TempDir here, there;
  const auto id = LoadNodeId("worker-1", here / "state");
  REQUIRE(id.ok());
  CHECK(id->value().size() == std::string("worker-1.").size() + 16);
  CHECK(id->value().rfind("worker-1.", 0) == 0);
  CHECK(*LoadNodeId("worker-1", here / "state") == *id);
  CHECK(*LoadNodeId("worker-1", there.path()) != *id);
}

TEST_CASE("two first runs at once agree on one identity") {
  TempDir here;
  std::vector<NodeId> ids(8);
  std::vector<std::thread> threads;
  for (NodeId& id : ids) threads.emplace_back([&] { id = LoadNodeId("w", here.path()).value_or(NodeId()); });
  for (std::thread& thread : threads) thread.join();
  CHECK(std::set<NodeId>(ids.begin(), ids.end()).size() == 1);
  CHECK_FALSE(ids[0].empty());
}

TEST_CASE("a damaged identity is refused and never replaced") {
  for (const std::string text :
       {"", "0123", "0123456789abcdeg\n", "0123456789abcdef0\n", "0123456789abcdef\nx"}) {
    TempDir here;
    std::ofstream(here / "node-instance") << text;
    CHECK(LoadNodeId("w", here.path()).status().code() == absl::StatusCode::kFailedPrecondition);
    std::ifstream file(here / "node-instance");
    CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  }
}

TEST_CASE("a node name that is not one is refused") {
  TempDir here;
  for (const std::string& name :
       {std::string(), std::string(174, 'n'), std::string("a b"), std::string("a/b")}) {
    CHECK(LoadNodeId(name, here.path()).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lunkeeper
