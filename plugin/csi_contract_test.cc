// What CSI promises, asked of a whole server over its socket: the same cases in 0.3 and in 1.x, and then
// those in which the two differ.

#include <absl/time/clock.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "base/testing/test_host.h"
#include "plugin/testing/csi_client.h"
#include "plugin/testing/fake_server.h"

namespace lunkeeper {
namespace {

using namespace testing;  // NOLINT: the client's vocabulary
using Catch::Contains;

struct ContractWorld {
  explicit ContractWorld(const std::string& option = "--csi-versions=1,0.3") : server(option) {
    std::filesystem::create_directory(staging);
    REQUIRE(server.AwaitReady());
  }
  template <class V>
  Client<V> Speak() const {
    return {server.socket, staging};
  }

  const TempDir folder;
  const std::string staging = folder / "staging";
  const std::string target = folder / "target";
  const std::string other = folder / "other";
  FakeServer server;
};

// Another machine's; nobody has seen it yet.
constexpr char kOtherNode[] = "b.00000000000000bb";

}  // namespace

TEMPLATE_TEST_CASE("a volume is made once for its name, and deleted twice", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const std::string id = client.MustCreate("pvc-1");
  CHECK(IdOf(client.Create("pvc-1")->volume()) == id);
  CHECK(client.Create("pvc-1", 32 * kMiB).code == StatusCode::ALREADY_EXISTS);
  CHECK(client.Create("pvc-1", 16 * kMiB, kManyReaders).code == StatusCode::ALREADY_EXISTS);
  CHECK(client.Create("").code == StatusCode::INVALID_ARGUMENT);
  CHECK(client.Create("negative", -1).code == StatusCode::INVALID_ARGUMENT);
  CHECK(client.Create("no mode", kMiB, 0).code == StatusCode::INVALID_ARGUMENT);
  CHECK(client.Create("a file system for many writers", kMiB, kManyWriters).code ==
        StatusCode::INVALID_ARGUMENT);
  CHECK(client.Create("endless", int64_t{1} << 62).code == StatusCode::OUT_OF_RANGE);
  CHECK(client.Delete(id).code == StatusCode::OK);
  CHECK(client.Delete(id).code == StatusCode::OK);
  CHECK(client.Delete("").code == StatusCode::INVALID_ARGUMENT);
}

TEMPLATE_TEST_CASE("volumes are listed in pages, and a foreign token is ABORTED", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  std::set<std::string> made, listed;
  for (const char* name : {"a", "b", "c"}) made.insert(client.MustCreate(name));
  std::string token;
  do {
    const auto page = client.List(2, token);
    REQUIRE(page.code == StatusCode::OK);
    CHECK(page->entries_size() <= 2);
    for (const auto& entry : page->entries()) {
      CHECK(entry.volume().capacity_bytes() == 16 * kMiB);
      CHECK(entry.volume().accessible_topology_size() == 1);
      listed.insert(IdOf(entry.volume()));
    }
    token = page->next_token();
  } while (!token.empty());
  CHECK(listed == made);
  CHECK(client.List(2, "no token of ours").code == StatusCode::ABORTED);
  CHECK(client.List(-1, "").code == StatusCode::INVALID_ARGUMENT);
}

TEMPLATE_TEST_CASE("a snapshot is taken once for its name, and volumes are made of it", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const std::string volume = client.MustCreate("pvc-1"), other = client.MustCreate("pvc-2");
  const auto taken = client.Snapshot("s", volume);
  REQUIRE(taken.code == StatusCode::OK);
  const std::string id = IdOf(taken->snapshot());
  CHECK(taken->snapshot().source_volume_id() == volume);
  CHECK(taken->snapshot().size_bytes() == 16 * kMiB);
  CHECK(IsReady(taken->snapshot()));
  CHECK(std::abs(SecondOf(taken->snapshot()) - absl::ToUnixSeconds(absl::Now())) < 600);
  CHECK(IdOf(client.Snapshot("s", volume)->snapshot()) == id);
  CHECK(client.Snapshot("s", other).code == StatusCode::ALREADY_EXISTS);
  CHECK(client.Snapshot("t", "nothing").code == StatusCode::NOT_FOUND);

  const auto copy = client.Create("copy", 16 * kMiB, kSingleWriter, id);
  REQUIRE(copy.code == StatusCode::OK);
  CHECK(copy->volume().content_source().has_snapshot());
  CHECK(client.Create("too small", kMiB, kSingleWriter, "nothing").code == StatusCode::NOT_FOUND);

  const auto listed = client.ListSnapshots(volume);
  REQUIRE(listed->entries_size() == 1);
  CHECK(IdOf(listed->entries(0).snapshot()) == id);
  CHECK(IsReady(listed->entries(0).snapshot()));
  CHECK(SecondOf(listed->entries(0).snapshot()) == SecondOf(taken->snapshot()));
  CHECK(client.DeleteSnapshot(id).code == StatusCode::OK);
  CHECK(client.DeleteSnapshot(id).code == StatusCode::OK);
  CHECK(client.ListSnapshots(volume)->entries_size() == 0);
}

TEMPLATE_TEST_CASE("a published volume is one node's, who is named to the next", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const std::string volume = client.MustCreate("pvc-1"), node = client.NodeId();
  const auto published = client.ControllerPublish(volume, node);
  REQUIRE(published.code == StatusCode::OK);
  CHECK(ContextOf(*published).contains("target"));
  CHECK(ContextOf(*client.ControllerPublish(volume, node)).at("target") ==
        ContextOf(*published).at("target"));
  const auto second = client.ControllerPublish(volume, kOtherNode);
  CHECK(second.code == StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(second.error, Contains(node));
  CHECK(client.ControllerPublish(volume, node, /*readonly=*/true).code == StatusCode::ALREADY_EXISTS);
  CHECK(client.ControllerPublish("nothing", node).code == StatusCode::NOT_FOUND);
  CHECK(client.ControllerPublish(volume, "nobody").code == StatusCode::NOT_FOUND);
  CHECK(client.Delete(volume).code == StatusCode::FAILED_PRECONDITION);
  CHECK(client.ControllerUnpublish(volume, node).code == StatusCode::OK);
  CHECK(client.ControllerUnpublish(volume, node).code == StatusCode::OK);
  CHECK(client.ControllerPublish(volume, kOtherNode).code == StatusCode::OK);
  CHECK(client.ControllerUnpublish(volume, "").code == StatusCode::OK);  // from every node
  CHECK(client.Delete(volume).code == StatusCode::OK);
}

TEMPLATE_TEST_CASE("a volume is confirmed for what it was made for", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const std::string volume = client.MustCreate("pvc-1");
  CHECK(Supports(*client.Validate(volume, kSingleWriter)));
  const auto refused = client.Validate(volume, kManyReaders);
  CHECK(refused.code == StatusCode::OK);
  CHECK_FALSE(Supports(*refused));
  CHECK_FALSE(refused->message().empty());
  CHECK(client.Validate("nothing", kSingleWriter).code == StatusCode::NOT_FOUND);
  CHECK(client.Validate(volume, 0).code == StatusCode::INVALID_ARGUMENT);
}

TEMPLATE_TEST_CASE("capacity is told", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const auto capacity = Ask(*client.controller, &TestType::Controller::Stub::GetCapacity, kNoFields);
  REQUIRE(capacity.code == StatusCode::OK);
  CHECK(capacity->available_capacity() > 0);
}

TEMPLATE_TEST_CASE("a volume is staged, published and taken back, each of it twice", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const std::string volume = client.MustCreate("pvc-1");
  CHECK(client.Publish(volume, world.target).code == StatusCode::FAILED_PRECONDITION);  // not staged
  CHECK(client.Stage("a1:nothing").code == StatusCode::NOT_FOUND);
  for (int i = 0; i < 2; ++i) REQUIRE(client.Stage(volume).code == StatusCode::OK);
  for (int i = 0; i < 2; ++i) REQUIRE(client.Publish(volume, world.target).code == StatusCode::OK);
  CHECK(client.Publish(volume, world.target, kSingleWriter, /*readonly=*/true).code ==
        StatusCode::ALREADY_EXISTS);
  CHECK(client.Delete(volume).code == StatusCode::FAILED_PRECONDITION);
  for (int i = 0; i < 2; ++i) CHECK(client.Unpublish(volume, world.target).code == StatusCode::OK);
  for (int i = 0; i < 2; ++i) CHECK(client.Unstage(volume).code == StatusCode::OK);
  CHECK(client.Delete(volume).code == StatusCode::OK);
  CHECK(client.Unpublish(volume, "relative").code == StatusCode::INVALID_ARGUMENT);
}

TEMPLATE_TEST_CASE("volumes of many nodes have as many target paths as they like", "", V0, V1) {
  const ContractWorld world;
  const auto client = world.Speak<TestType>();
  const auto made = Ask(*client.controller, &TestType::Controller::Stub::CreateVolume, [&](auto& request) {
    request.set_name("pvc-1");
    for (const int mode : {kSingleWriter, kManyReaders}) SetMount(request.add_volume_capabilities(), mode);
  });
  const std::string volume = IdOf(made->volume());
  REQUIRE(client.Stage(volume).code == StatusCode::OK);  // as a writer, which can make the file system
  for (const std::string& path : {world.target, world.other}) {
    INFO(client.Publish(volume, path, kManyReaders).error);
    CHECK(client.Publish(volume, path, kManyReaders).code == StatusCode::OK);
  }
}

// CSI 0.3, "NodePublishVolume": the row "Non MULTI_NODE" of the table.
TEST_CASE("in 0.3 a volume of a single node has one target path; in 1.x a writer has many") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto v1 = world.Speak<V1>();
  const std::string volume = v0.MustCreate("pvc-1");
  REQUIRE(v0.Stage(volume).code == StatusCode::OK);
  for (const int mode : {kSingleWriter, kSingleReader}) {
    INFO(mode);
    REQUIRE(v0.Publish(volume, world.target, mode).code == StatusCode::OK);
    CHECK(v0.Publish(volume, world.target, mode).code == StatusCode::OK);
    const auto second = v0.Publish(volume, world.other, mode);
    CHECK(second.code == StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(second.error, Contains(world.target));
    CHECK(v0.Publish(volume, world.other, mode, /*readonly=*/true).code == StatusCode::FAILED_PRECONDITION);
    CHECK(v0.Unpublish(volume, world.target).code == StatusCode::OK);
  }
  REQUIRE(v1.Publish(volume, world.target).code == StatusCode::OK);
  CHECK(v1.Publish(volume, world.other).code == StatusCode::OK);
}

TEST_CASE("in 0.3 the target path is the orchestrator's, in 1.x the plugin's") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto v1 = world.Speak<V1>();
  const std::string volume = v0.MustCreate("pvc-1");
  REQUIRE(v0.Stage(volume).code == StatusCode::OK);
  std::filesystem::create_directory(world.target);
  REQUIRE(v0.Publish(volume, world.target).code == StatusCode::OK);
  REQUIRE(v0.Unpublish(volume, world.target).code == StatusCode::OK);
  CHECK(std::filesystem::is_directory(world.target));
  REQUIRE(v1.Publish(volume, world.target).code == StatusCode::OK);
  REQUIRE(v1.Unpublish(volume, world.target).code == StatusCode::OK);
  CHECK_FALSE(std::filesystem::exists(world.target));
}

TEST_CASE("what was done in one version is undone in the other") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto v1 = world.Speak<V1>();
  const std::string volume = v1.MustCreate("pvc-1");
  CHECK(IdOf(v0.Create("pvc-1")->volume()) == volume);
  REQUIRE(v0.Stage(volume).code == StatusCode::OK);
  REQUIRE(v1.Publish(volume, world.target).code == StatusCode::OK);
  CHECK(v0.Publish(volume, world.target).code == StatusCode::OK);  // the same one
  REQUIRE(v0.Unpublish(volume, world.target).code == StatusCode::OK);
  REQUIRE(v1.Unstage(volume).code == StatusCode::OK);
  CHECK(v0.Delete(volume).code == StatusCode::OK);
  CHECK(v1.List(0, "")->entries_size() == 0);
}

TEST_CASE("0.3 has its own words: names, capabilities, ids and places") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  CHECK(Ask(*v0.identity, &V0::Identity::Stub::GetPluginInfo, kNoFields)->name() == "io.lunkeeper.csi");
  CHECK(Ask(*v0.identity, &V0::Identity::Stub::Probe, kNoFields)->ready().value());
  const auto plugin = Ask(*v0.identity, &V0::Identity::Stub::GetPluginCapabilities, kNoFields);
  CHECK(plugin->capabilities_size() == 2);  // a controller, and places; growth came later
  const auto controller = Ask(*v0.controller, &V0::Controller::Stub::ControllerGetCapabilities, kNoFields);
  CHECK(controller->capabilities_size() == 6);
  const auto node = Ask(*v0.node, &V0::Node::Stub::NodeGetCapabilities, kNoFields);
  CHECK(node->capabilities_size() == 1);
  const auto info = Ask(*v0.node, &V0::Node::Stub::NodeGetInfo, kNoFields);
  CHECK(info->node_id() == world.Speak<V1>().NodeId());
  CHECK(Ask(*v0.node, &V0::Node::Stub::NodeGetId, kNoFields)->node_id() == info->node_id());
  CHECK(info->max_volumes_per_node() == 200);
  CHECK(info->accessible_topology().segments().at("io.lunkeeper.array/array") == "reachable");
}

TEST_CASE("in 0.3 a place has a key in reverse-domain form, in requests and in answers") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto create = [&](const std::string& name, const std::string& key) {
    return Ask(*v0.controller, &V0::Controller::Stub::CreateVolume, [&](auto& request) {
      request.set_name(name);
      SetMount(request.add_volume_capabilities(), kSingleWriter);
      auto* place = request.mutable_accessibility_requirements()->add_requisite();
      (*place->mutable_segments())[key] = "reachable";
    });
  };
  const auto made = create("pvc-1", "io.lunkeeper.array/array");
  REQUIRE(made.code == StatusCode::OK);
  REQUIRE(made->volume().accessible_topology_size() == 1);
  CHECK(made->volume().accessible_topology(0).segments().contains("io.lunkeeper.array/array"));
  CHECK(create("pvc-2", "io.lunkeeper.array/another").code == StatusCode::RESOURCE_EXHAUSTED);
  const auto validate = [&](const std::string& key) {
    return Ask(*v0.controller, &V0::Controller::Stub::ValidateVolumeCapabilities, [&](auto& request) {
      request.set_volume_id(made->volume().id());
      SetMount(request.add_volume_capabilities(), kSingleWriter);
      (*request.add_accessible_topology()->mutable_segments())[key] = "reachable";
    });
  };
  CHECK(validate("io.lunkeeper.array/array")->supported());
  CHECK_FALSE(validate("io.lunkeeper.array/another")->supported());
  CHECK_FALSE(validate("io.lunkeeper.array/another")->message().empty());
}

TEST_CASE("what came after 0.3 is neither taken from its callers nor told them") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto v1 = world.Speak<V1>();
  constexpr int kLaterMode = v1::VolumeCapability::AccessMode::SINGLE_NODE_MULTI_WRITER;
  CHECK(v0.Create("later mode", kMiB, kLaterMode).code == StatusCode::INVALID_ARGUMENT);
  CHECK(v1.Create("later mode", kMiB, kLaterMode).code == StatusCode::OK);
  // mutable_parameters, by its number: unknown to 0.3, and refused by 1.x.
  CHECK(Ask(*v0.controller, &V0::Controller::Stub::CreateVolume, [&](auto& request) {
          request.set_name("pvc-1");
          SetMount(request.add_volume_capabilities(), kSingleWriter);
          v1::CreateVolumeRequest later;
          (*later.mutable_mutable_parameters())["size"] = "large";
          request.MergeFromString(later.SerializeAsString());
        }).code == StatusCode::OK);
  const auto clone = Ask(*v1.controller, &V1::Controller::Stub::CreateVolume, [&](auto& request) {
    request.set_name("clone");
    SetMount(request.add_volume_capabilities(), kSingleWriter);
    request.mutable_volume_content_source()->mutable_volume()->set_volume_id(
        v0.Create("pvc-1")->volume().id());
  });
  INFO(clone.error);
  REQUIRE(clone.code == StatusCode::OK);
  const auto listed = v0.List(0, "");
  CHECK(listed->entries_size() == 3);
  for (const auto& entry : listed->entries()) CHECK_FALSE(entry.volume().has_content_source());
}

TEST_CASE("the errors of 0.3 are by its tables, and name its fields") {
  const ContractWorld world;
  const auto v0 = world.Speak<V0>();
  const auto v1 = world.Speak<V1>();
  CHECK(v0.ControllerUnpublish("array:nothing", v0.NodeId()).code == StatusCode::NOT_FOUND);
  CHECK(v1.ControllerUnpublish("array:nothing", v1.NodeId()).code == StatusCode::OK);
  const auto refused = Ask(*v0.node, &V0::Node::Stub::NodeStageVolume, [&](auto& request) {
    request.set_volume_id(v0.MustCreate("pvc-1"));
    request.set_staging_target_path(world.staging);
    SetMount(request.mutable_volume_capability(), kSingleWriter);
    (*request.mutable_publish_info())["target"] = "nonsense";
  });
  CHECK(refused.code == StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(refused.error, Contains("publish_info") && !Contains("publish_context"));
}

TEST_CASE("a version that is left out is UNIMPLEMENTED") {
  const auto probe = [](const ContractWorld& world) {
    return std::pair(Ask(*world.Speak<V0>().identity, &V0::Identity::Stub::Probe, kNoFields).code,
                     Ask(*world.Speak<V1>().identity, &V1::Identity::Stub::Probe, kNoFields).code);
  };
  CHECK(probe(ContractWorld("--csi-versions=1")) == std::pair(StatusCode::UNIMPLEMENTED, StatusCode::OK));
  const ContractWorld old("--csi-versions=0.3");
  CHECK(probe(old) == std::pair(StatusCode::OK, StatusCode::UNIMPLEMENTED));
  // All of it still works.
  const auto v0 = old.Speak<V0>();
  const std::string volume = v0.MustCreate("pvc-1");
  CHECK(v0.Stage(volume).code == StatusCode::OK);
  CHECK(old.Speak<V1>().Stage(volume).code == StatusCode::UNIMPLEMENTED);
}

TEST_CASE("the name that 0.3 shows can be chosen") {
  const ContractWorld world("--csi-v0-name=com.example.iscsi");
  CHECK(Ask(*world.Speak<V0>().identity, &V0::Identity::Stub::GetPluginInfo, kNoFields)->name() ==
        "com.example.iscsi");
  CHECK(Ask(*world.Speak<V1>().identity, &V1::Identity::Stub::GetPluginInfo, kNoFields)->name() ==
        "csi.lunkeeper.io");
}

}  // namespace lunkeeper
