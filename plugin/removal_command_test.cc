// `lunkeeper remove-array` and `add-array`, over a real socket.

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

fencing::VolumeUse UseOn(const std::string& node, bool has_device, bool is_silent) {
  fencing::VolumeUse use;
  use.volume = VolumeId("a1-v0000000000000001");
  use.node = fencing::NodeName(node);
  use.has_device = has_device;
  use.is_silent = is_silent;
  use.pods = {{fencing::PodId("db/" + node), fencing::Uid("u")}};
  return use;
}

}  // namespace

TEST_CASE("a removal is followed until no node whose heartbeats arrive has anything of it") {
  std::atomic<int> asked = 0;
  std::atomic<bool> forced = false;
  Shell shell([&](Backends& backends) {
    backends.array_removal.remove = [&](const std::string& array,
                                        bool force) -> absl::StatusOr<std::vector<fencing::VolumeUse>> {
      forced = force;
      if (!force) return absl::FailedPreconditionError("array " + array + " is used: db/n1");
      return std::vector{UseOn("n1", true, false), UseOn("n2", true, true)};
    };
    backends.array_removal.list_uses = [&](const std::string&) {
      return std::vector{UseOn("n1", ++asked < 3, false), UseOn("n2", true, true)};
    };
  });
  CHECK_THAT(shell.Run({"remove-array", "a1"}),
             Catch::Contains("error:") && Catch::Contains("is used: db/n1"));
  CHECK(asked == 0);
  const std::string told = shell.Run({"remove-array", "a1", "--force"});
  CHECK(forced);
  CHECK_THAT(told, Catch::Contains("volume a1-v0000000000000001 on node n1, used by db/n1") &&
                       Catch::Contains("on node n1: detached") &&
                       Catch::Contains("on node n2: the node is silent") &&
                       Catch::Contains("its data stay on it"));
  CHECK(asked == 3);
}

// After a controller's start, say: what it last had is not known, only that an array granted it something.
TEST_CASE("a silent node of which no device is known is named, too") {
  Shell shell([](Backends& backends) {
    backends.array_removal.remove = [](const std::string&, bool) {
      return std::vector{UseOn("n1", false, true)};
    };
    backends.array_removal.list_uses = [](const std::string&) {
      return std::vector{UseOn("n1", false, true), UseOn("n2", false, false)};
    };
  });
  CHECK_THAT(shell.Run({"remove-array", "a1", "--force"}),
             Catch::Contains("on node n1: the node is silent") && !Catch::Contains("n2"));
}

// A node whose plugin is of an older version does not know that it should end anything.
TEST_CASE("a removal that nodes do not finish in time says what is left, and whose I/O goes on") {
  std::atomic<bool> ended = true;
  Shell shell([&](Backends& backends) {
    const auto left = [&] {
      fencing::VolumeUse here = UseOn("n1", true, false), there = UseOn("n2", true, false);
      here.io_ended = true;
      there.io_ended = ended;
      return std::vector{here, there};
    };
    backends.array_removal.remove = [left](const std::string&, bool) { return left(); };
    backends.array_removal.list_uses = [left](const std::string&) { return left(); };
  });
  for (const bool all : {true, false}) {
    ended = all;
    const std::string told = shell.Run({"remove-array", "a1", "--timeout", "1"});
    CHECK_THAT(told, Catch::Contains("error:") && Catch::Contains("array a1 is removed") &&
                         Catch::Contains("volume a1-v0000000000000001 on node n1, whose I/O has ended"));
    CHECK((told.find("on node n2, WHOSE I/O GOES ON") != std::string::npos) == !all);
    CHECK((told.find("older version") != std::string::npos) == !all);
  }
}

TEST_CASE("without failover no array is removed or added back") {
  Shell shell;
  CHECK_THAT(shell.Run({"remove-array", "a1"}), Catch::Contains("no controller with failover"));
  CHECK_THAT(shell.Run({"add-array", "a1"}), Catch::Contains("no controller with failover"));
}

TEST_CASE("an array that is added back is used again") {
  std::promise<std::string> added;
  Shell shell([&](Backends& backends) {
    backends.array_removal.add = [&](const std::string& array) {
      added.set_value(array);
      return absl::OkStatus();
    };
  });
  REQUIRE(shell.Run({"add-array", "a1"}) == "array a1 is used again\n");
  CHECK(added.get_future().get() == "a1");
}

}  // namespace lunkeeper
