// `lunkeeper volumes`, `snapshots`, `nodes` and `arrays`, over a real socket, with an API server in memory.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "fencing/failover/testing/fake_api.h"
#include "plugin/table.h"
#include "plugin/testing/shell.h"
#include "plugin/testing/two_arrays.h"

namespace lunkeeper {
namespace {

using kube::Json;

void BindClaim(fencing::FakeApi& api, const VolumeId& volume, const std::string& claim) {
  api.Put("/api/v1/persistentvolumes/pv-" + claim,
          {{"spec",
            {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", volume.value()}}},
             {"claimRef", {{"namespace", "db"}, {"name", claim}}}}},
           {"status", {{"phase", "Bound"}}}});
}

Json ParsedOutput(Shell& shell, const std::string& command) {
  const std::string text = shell.Run({command, "--output", "json"});
  CAPTURE(text);
  const Json json = Json::parse(text, nullptr, false);
  REQUIRE(json.is_array());
  return json;
}

}  // namespace

TEST_CASE("a table has columns as wide as they need, and those for few when they are asked for") {
  Table table({{"NAME", "name"}, {"SIZE", "size_bytes"}, {"WHY", "", true}});
  table.AddRow({"a-long-name", SizeCell(3ULL << 29), "because"});
  table.AddRow({"b", SizeCell(1), ""});
  std::ostringstream brief, wide, json;
  table.Print(brief, Output::kTable);
  CHECK(brief.str() == "NAME         SIZE\na-long-name  1.5 GiB\nb            0.0 GiB\n");
  table.Print(wide, Output::kWide, "  ");
  CHECK(wide.str() ==
        "  NAME         SIZE     WHY\n  a-long-name  1.5 GiB  because\n  b            0.0 GiB\n");
  table.Print(json, Output::kJson);
  CHECK(Json::parse(json.str()) == Json::parse(R"([{"name":"a-long-name","size_bytes":1610612736},
                                                  {"name":"b","size_bytes":1}])"));
}

TEST_CASE("volumes are listed with their claims and nodes") {
  Shell shell;
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  CHECK(shell.Run({"volumes"}) == "no volumes\n");
  CHECK(ParsedOutput(shell, "volumes").empty());
  const VolumeId used = Granted(*shell.array, "used");
  VolumeSpec spec;
  spec.name = "spare";
  spec.size_bytes = 3ULL << 30;
  spec.claim = "db/first";
  const VolumeId spare = shell.array->CreateVolume(spec)->id;
  BindClaim(api, used, "data-0");
  CHECK_THAT(shell.Run({"volumes"}),
             Catch::Contains(used.value() + "  db/data-0  0.0 GiB  " + kNode.value() + "\n") &&
                 Catch::Contains(spare.value() + "  -          3.0 GiB  -\n") && !Catch::Contains("thin"));
  CHECK_THAT(shell.Run({"volumes", "-o", "wide"}),
             Catch::Contains("thin") && Catch::Contains("spare  db/first"));
  const Json listed = ParsedOutput(shell, "volumes");
  REQUIRE(listed.size() == 2);
  for (const Json& volume : listed) {
    const bool is_used = volume["id"] == used.value();
    CHECK(volume["claim"] == (is_used ? Json("db/data-0") : Json()));
    CHECK(volume["first_claim"] == (is_used ? Json() : Json("db/first")));
    CHECK(volume["nodes"] == (is_used ? Json::array({kNode.value()}) : Json::array()));
    CHECK(volume["size_bytes"] == (is_used ? 1 << 20 : 3ULL << 30));
  }
}

TEST_CASE("where there is no cluster, volumes are listed by id alone; an API server that fails is told of") {
  Shell shell;
  const VolumeId volume = Granted(*shell.array, "v");
  shell.cluster = []() -> absl::StatusOr<std::unique_ptr<kube::KubeClient>> {
    return absl::FailedPreconditionError("this is no pod");
  };
  CHECK_THAT(shell.Run({"volumes"}), Catch::Contains(volume.value()));
  shell.cluster = []() -> absl::StatusOr<std::unique_ptr<kube::KubeClient>> {
    return absl::UnavailableError("the API server is away");
  };
  const Shell::Output told = shell.RunFully({"volumes"});
  CHECK_THAT(told.out, Catch::Contains(volume.value()));
  CHECK_THAT(told.errors, Catch::Contains("claims are not shown: the API server is away"));
  CHECK(told.exit_code == 0);
}

TEST_CASE("an array that is away is named, and the list is an error") {
  const auto arrays = std::make_shared<TwoArrays>();
  Shell shell(arrays);
  const VolumeId volume = Granted(*arrays->one, "v");
  Granted(*arrays->two, "w");
  arrays->two->FailWith(absl::UnavailableError("its host is down"));
  for (const char* command : {"volumes", "snapshots", "arrays", "nodes"}) {
    CAPTURE(command);
    const Shell::Output told = shell.RunFully({command});
    CHECK(told.exit_code == 1);
    CHECK_THAT(told.errors, Catch::Contains("a2") && Catch::Contains("its host is down"));
  }
  CHECK_THAT(shell.RunFully({"volumes"}).out, Catch::Contains(volume.value()));
  CHECK(shell.RunFully({"snapshots"}).out.empty());  // and not "no snapshots"
  const Json listed = Json::parse(shell.RunFully({"arrays", "-o", "json"}).out);
  CHECK(listed[0]["serves"] == true);
  CHECK(listed[0]["grants"] == 1);
  CHECK(listed[1]["serves"] == false);
  CHECK(listed[1]["total_bytes"].is_null());
}

TEST_CASE("snapshots are listed with what Kubernetes calls them") {
  Shell shell;
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  const VolumeId volume = Granted(*shell.array, "v");
  BindClaim(api, volume, "data-0");
  const SnapshotId snapshot = shell.array->CreateSnapshot("s", volume)->id;
  api.Put(
      "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c",
      {{"spec",
        {{"driver", "csi.lunkeeper.io"}, {"volumeSnapshotRef", {{"namespace", "db"}, {"name", "daily"}}}}},
       {"status", {{"snapshotHandle", snapshot.value()}}}});
  const Json listed = ParsedOutput(shell, "snapshots");
  REQUIRE(listed.size() == 1);
  CHECK(listed[0]["id"] == snapshot.value());
  CHECK(listed[0]["volume_snapshot"] == "db/daily");
  CHECK(listed[0]["claim"] == "db/data-0");
  CHECK(listed[0]["ready"] == true);
  CHECK(listed[0]["group"].is_null());

  const auto group = shell.array->CreateGroup("g", {volume});
  REQUIRE(group.ok());
  CHECK(ParsedOutput(shell, "snapshots")[1]["group"] == group->id.value());
}

TEST_CASE("nodes are listed with their volumes and fences, also those that have none") {
  Shell shell;
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  const VolumeId volume = Granted(*shell.array, "v");
  for (const std::string name : {"a", "b"})
    api.Put(
        "/apis/storage.k8s.io/v1/csinodes/" + name,
        {{"spec", {{"drivers", {{{"name", "csi.lunkeeper.io"}, {"nodeID", name + ".00000000000000aa"}}}}}}});
  const NodeId old("b.00000000000000bb");
  REQUIRE(shell.array->FenceNode(*shell.array->BeginTerm("leader"), {old, {}}).ok());
  api.Put("/apis/lunkeeper.io/v1alpha1/nodefences/" + old.value(), {{"status", {{"phase", "AwaitingNode"}}}});
  const Json listed = ParsedOutput(shell, "nodes");
  REQUIRE(listed.size() == 3);
  CHECK(listed[0]["name"] == "a");
  CHECK(listed[0]["volumes"] == Json::array({volume.value()}));
  CHECK(listed[1]["name"] == "b");
  CHECK(listed[1]["volumes"].empty());
  CHECK(listed[2]["name"].is_null());
  CHECK(listed[2]["id"] == old.value());
  CHECK(listed[2]["node_fence"] == "AwaitingNode");
  CHECK(listed[2]["fenced_at"] == Json::array({"a1"}));
}

TEST_CASE("a process without arrays lists none, and an output that is unknown is refused") {
  Shell shell([](Backends& backends) { backends.arrays = nullptr; });
  CHECK_THAT(shell.Run({"volumes"}), Catch::Contains("FAILED_PRECONDITION"));
  CHECK_THROWS_AS(shell.Run({"volumes", "-o", "yaml"}), CLI::ParseError);
}

}  // namespace lunkeeper
