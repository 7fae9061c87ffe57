#include "fencing/agent/removed_arrays.h"

#include <catch2/catch.hpp>
#include <set>

namespace lunkeeper {
namespace {

// Three devices, of which one has failed already.
struct NodeWithDevices {
  std::vector<Device> devices;
  std::set<std::string> failed;
  absl::Status answer;

  NodeWithDevices() {
    for (const char* id :
         {"rack1-v0000000000000001", "rack10-v0000000000000001", "rack1-v0000000000000002"}) {
      devices.emplace_back();
      devices.back().volume = VolumeId(id);
    }
    devices.back().health = DeviceHealth::kFailed;
  }
  RemovedArrays::Fail fail = [this](const Device& device, const std::string& why) {
    CHECK_THAT(why, Catch::Contains("array rack1 was removed"));
    failed.insert(device.volume.value());
    return answer;
  };
};

}  // namespace

TEST_CASE("the I/O of a removed array's volumes is ended, and that of no other") {
  NodeWithDevices node;
  RemovedArrays removed;
  removed.EndIo(node.devices, node.fail);
  CHECK(node.failed.empty());
  CHECK(removed.NoteNamed({"rack1"}));
  CHECK_FALSE(removed.NoteNamed({}));
  removed.EndIo(node.devices, node.fail);
  CHECK(node.failed == std::set<std::string>{"rack1-v0000000000000001"});
}

TEST_CASE("what a node has of a removed array is ended for as long as answers name it, and no longer") {
  NodeWithDevices node;
  RemovedArrays removed;
  node.answer = absl::UnavailableError("the data path does not answer");
  CHECK(removed.NoteNamed({"rack1"}));
  removed.EndIo(node.devices, node.fail);
  CHECK_FALSE(removed.NoteNamed({"rack1"}));  // known, so nobody is woken for it
  node.failed.clear();
  removed.EndIo(node.devices, node.fail);
  CHECK(node.failed.size() == 1);
  node.failed.clear();
  removed.EndIo(node.devices, node.fail);  // no answer came since, or it was added back
  CHECK(node.failed.empty());
}

}  // namespace lunkeeper
