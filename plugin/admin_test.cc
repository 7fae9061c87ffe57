// Manual fences, through the service and through the operator's commands over a real socket.

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>

#include "fencing/failover/facts.h"
#include "fencing/failover/testing/fake_api.h"
#include "plugin/options.h"
#include "plugin/testing/shell.h"
#include "plugin/testing/two_arrays.h"

namespace lunkeeper {

TEST_CASE("a fence by hand takes all a node has, and tells how to end it") {
  Shell shell;
  const VolumeId one = Granted(*shell.array, "one");
  const VolumeId two = Granted(*shell.array, "two");
  CHECK_THAT(shell.Run({"status"}), Catch::Contains(one.value()) && Catch::Contains(kNode.value()) &&
                                        Catch::Contains("ready") && Catch::Contains("fenced nodes: none"));

  const std::string fenced = shell.Run({"fence", kNode.value()});
  CHECK_THAT(fenced, Catch::Contains(one.value()) && Catch::Contains(two.value()));
  CHECK(shell.array->ListGrants({})->empty());
  CHECK(absl::IsFailedPrecondition(shell.array->AcquireGrant({one, kNode}, absl::ZeroDuration()).status()));
  CHECK_THAT(shell.Run({"status"}),
             Catch::Contains("grants: none") && !Catch::Contains("fenced nodes: none"));

  const std::string generation = std::to_string(shell.array->ListFences()->front().generation);
  CHECK_THAT(fenced, Catch::Contains("lunkeeper unfence " + kNode.value() + " --generation " + generation));
  CHECK_THAT(shell.Run({"unfence", kNode.value(), "--generation", "999"}), Catch::StartsWith("error: "));
  CHECK_THAT(shell.Run({"unfence", kNode.value()}), Catch::Contains("--generation is required"));
  CHECK_THAT(shell.Run({"fence", kNode.value(), "--reason", "it smokes"}), Catch::Contains("is fenced"));
  CHECK_THAT(shell.Run({"status"}), Catch::Contains("operator@") && Catch::Contains("it smokes"));
  CHECK(shell.array->ListFences()->size() == 1);
  CHECK_THAT(shell.Run({"unfence", kNode.value(), "--generation", generation}),
             Catch::Contains("not fenced"));
  CHECK(shell.array->ListFences()->empty());
}

TEST_CASE("an id means that instance alone: its name is open to the machine that was installed anew") {
  const NodeId anew("a.00000000000000bb");
  Shell shell;
  const VolumeId old = Granted(*shell.array, "old");
  const VolumeId one = Granted(*shell.array, "one", anew);
  const std::string fenced = shell.Run({"fence", kNode.value()});
  CHECK_THAT(fenced, Catch::Contains(old.value()) && !Catch::Contains(one.value()) &&
                         Catch::Contains("that instance alone") && !Catch::Contains("known here"));
  REQUIRE(shell.array->ListGrants({})->size() == 1);
  CHECK(shell.array->ListGrants({})->front().node == anew);
  CHECK(shell.array->AcquireGrant({old, anew}, absl::ZeroDuration()).ok());
  CHECK(absl::IsFailedPrecondition(shell.array->AcquireGrant({old, kNode}, absl::ZeroDuration()).status()));
  // The machine's own fence is beside it, and each is lifted by its generation.
  CHECK_THAT(shell.Run({"fence", "a"}), Catch::Contains("whatever instance it becomes"));
  CHECK(shell.array->ListFences()->size() == 2);
  CHECK_THAT(shell.Run({"unfence", kNode.value(), "--generation", "999"}), Catch::StartsWith("error: "));
}

TEST_CASE("a name that the array has never met is closed all the same, and the answer says so") {
  Shell shell;
  Granted(*shell.array, "one");
  const auto mistyped = GENERATE(std::string("aa"), std::string("a.00000000000000ab"), std::string("aa.all"));
  CHECK_THAT(shell.Run({"fence", mistyped}), Catch::Contains("nothing of that name is known here"));
  CHECK(shell.array->ListFences()->size() == 1);
  CHECK_THAT(shell.Run({"fence", mistyped}), !Catch::Contains("known here"));  // there is a fence
  CHECK_THAT(shell.Run({"fence", "a"}), !Catch::Contains("known here"));
}

TEST_CASE("a machine that is fenced by hand gets nothing as another instance, until it is unfenced") {
  const NodeId other("a.00000000000000bb"), next("a.00000000000000cc");
  Shell shell;
  const VolumeId one = Granted(*shell.array, "one");
  const VolumeId two = Granted(*shell.array, "two", other);
  const auto named = GENERATE(std::string("a"), std::string("a.all"));
  CHECK_THAT(shell.Run({"fence", named}), Catch::Contains(one.value()) && Catch::Contains(two.value()));
  CHECK(shell.array->ListGrants({})->empty());
  for (const NodeId& node : {kNode, other, next})
    CHECK(absl::IsFailedPrecondition(shell.array->AcquireGrant({one, node}, absl::ZeroDuration()).status()));

  // A failover of the same node comes and goes.
  const Generation machine = shell.array->ListFences()->front().generation;
  const Term term = *shell.array->BeginTerm("leader");
  const auto fence = shell.array->FenceNode(term, {kNode, {}});
  REQUIRE(shell.array->UnfenceNode(term, kNode, fence->generation).ok());
  CHECK(absl::IsFailedPrecondition(shell.array->AcquireGrant({one, kNode}, absl::ZeroDuration()).status()));
  CHECK_THAT(shell.Run({"unfence", named, "--generation", std::to_string(machine)}),
             Catch::Contains("not fenced"));
  CHECK(shell.array->AcquireGrant({one, next}, absl::ZeroDuration()).ok());
}

TEST_CASE("the fence that failover put at an array can be lifted there by its node's id") {
  Shell shell;
  const Term term = *shell.array->BeginTerm("leader");
  const auto fence = shell.array->FenceNode(term, {kNode, {}});
  shell.Run({"unfence", kNode.value(), "--generation", std::to_string(fence->generation)});
  CHECK(shell.array->ListFences()->empty());
}

TEST_CASE("in a cluster a node's fence is asked of failover, and an array's own is still there") {
  Shell shell;
  const VolumeId one = Granted(*shell.array, "one");
  fencing::FakeApi api;
  shell.cluster = [&] { return api.Client(); };
  const std::string path = "/apis/lunkeeper.io/v1alpha1/nodefences/" + kNode.value();
  CHECK_THAT(shell.Run({"fence", kNode.value(), "--reason", "a test", "--timeout", "1"}),
             Catch::StartsWith("error: ") && Catch::Contains("no controller has taken it up"));
  CHECK(kube::TextAt(api.Get(path), {"spec", "cause"}) == "a test");
  CHECK_THAT(kube::TextAt(api.Get(path), {"spec", "requestedBy"}), Catch::StartsWith("operator@"));
  CHECK(shell.array->ListGrants({})->size() == 1);
  CHECK(kube::FieldAt(api.Get(path), {"spec", "graceful"}).is_null());
  CHECK_THAT(shell.Run({"unfence", kNode.value()}), Catch::Contains("may take volumes again"));
  CHECK(api.Get(path).is_null());
  CHECK_THAT(shell.Run({"fence", kNode.value(), "--array", "a1"}), Catch::Contains(one.value()));
  CHECK(shell.array->ListGrants({})->empty());
}

TEST_CASE("a graceful fence is for nodes of a cluster, and not for one array") {
  Shell shell;
  Granted(*shell.array, "one");
  CHECK_THAT(shell.Run({"fence", kNode.value(), "--graceful", "--array", "a1"}),
             Catch::StartsWith("error: ") && Catch::Contains("no pods to ask"));
  CHECK(shell.array->ListGrants({})->size() == 1);
}

TEST_CASE("a fence of some volumes leaves the others") {
  Shell shell;
  const VolumeId one = Granted(*shell.array, "one");
  const VolumeId two = Granted(*shell.array, "two");
  shell.Run({"fence", kNode.value(), "--volume", one.value()});
  const auto left = shell.array->ListGrants({});
  REQUIRE(left->size() == 1);
  CHECK(left->front().volume == two);
}

TEST_CASE("a fence that cannot drain is an error, and ends when repeated") {
  Shell shell;
  Granted(*shell.array, "one");
  shell.array->HoldDrains(true);
  CHECK_THAT(shell.Run({"fence", kNode.value()}), Catch::Contains("repeat") && Catch::StartsWith("error: "));
  shell.array->HoldDrains(false);
  CHECK_THAT(shell.Run({"fence", kNode.value()}), Catch::Contains("is fenced"));
}

TEST_CASE("the status of an array that does not serve says why") {
  Shell shell;
  shell.array->FailWith(absl::UnavailableError("restored from an older copy: run lunkeeper accept-restore"));
  CHECK_THAT(shell.Run({"status"}), Catch::Contains("not ready") && Catch::Contains("accept-restore"));
  CHECK_THAT(shell.Run({"accept-restore"}), Catch::Contains("serves"));
}

TEST_CASE("an array of which a part does not answer is shown with all that is known of it") {
  Shell shell;
  const VolumeId hidden = Granted(*shell.array, "hidden"), seen = Granted(*shell.array, "seen");
  shell.Run({"fence", "b"});
  shell.array->HideSessions(hidden, true);
  CHECK_THAT(shell.Run({"status"}), Catch::Contains("its tgtd 1 does not answer") &&
                                        Catch::Contains(hidden.value()) && Catch::Contains(seen.value()) &&
                                        Catch::Contains("b.all") && !Catch::Contains("does not serve"));
  const Shell::Output listed = shell.RunFully({"arrays"});
  CHECK(listed.exit_code == 1);
  CHECK_THAT(listed.out, Catch::Contains("yes"));
}

TEST_CASE("where there are several arrays, each is shown, and fenced by name") {
  const auto arrays = std::make_shared<TwoArrays>();
  Shell shell(arrays);
  Granted(*arrays->one, "v");
  Granted(*arrays->two, "w");
  CHECK_THAT(shell.Run({"fence", kNode.value()}), Catch::Contains("a1, a2") && Catch::Contains("--array"));
  const std::string fenced = shell.Run({"fence", kNode.value(), "--array", "a2"});
  CHECK(arrays->two->ListGrants({})->empty());
  CHECK(arrays->one->ListGrants({})->size() == 1);
  const std::string generation = std::to_string(arrays->two->ListFences()->front().generation);
  CHECK_THAT(fenced, Catch::Contains("--generation " + generation + " --array a2"));
  shell.Run({"unfence", kNode.value(), "--generation", generation, "--array", "a2"});
  CHECK(arrays->two->ListFences()->empty());
  arrays->two->FailWith(absl::UnavailableError("its host is down"));
  CHECK_THAT(shell.Run({"status"}),
             Catch::Contains("array a1: ") && Catch::Contains("array a2 does not serve: its host is down"));
}

TEST_CASE("a process without an array refuses manual fences") {
  Backends backends;
  const auto service = MakeAdminService(&backends, "node");
  admin::v1::FenceRequest fence;
  fence.set_node(kNode.value());
  admin::v1::FenceResponse fenced;
  CHECK(service->Fence(nullptr, &fence, &fenced).error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  admin::v1::AcceptRestoreResponse accepted;
  CHECK(service->AcceptRestore(nullptr, nullptr, &accepted).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("a process without an array has no files that were set aside") {
  Shell shell;
  CHECK_THAT(shell.Run({"orphans", "list"}),
             Catch::Contains("FAILED_PRECONDITION") && Catch::Contains("array's agent runs"));
  CHECK_THAT(shell.Run({"orphans", "delete", "b"}), Catch::Contains("FAILED_PRECONDITION"));
}

TEST_CASE("files that were set aside are listed and deleted by name") {
  OrphanFolder folder({{"a1-v7.1", 4096, absl::FromUnixSeconds(1'800'000'000)}, {"b", 0, {}}});
  Shell shell(&folder);
  CHECK_THAT(shell.Run({"orphans", "list"}),
             Catch::Contains("a1-v7.1  4096 bytes  last written 2027-01-15 08:00:00 UTC"));
  CHECK_THAT(shell.Run({"orphans", "delete", "c"}), Catch::Contains("NOT_FOUND"));
  CHECK(folder.ListFiles().size() == 2);
  CHECK(shell.Run({"orphans", "delete", "b", "a1-v7.1"}) == "deleted\n");
  CHECK(shell.Run({"orphans", "list"}) == "no files are set aside\n");
}

TEST_CASE("a volume that is allowed to move again is named, with the nodes that died of it") {
  fencing::FakeApi api;
  api.Put("/api/v1/persistentvolumes/pvc-1",
          {{"metadata", {{"annotations", {{fencing::kMountDeathsKey, "n1.a,n2.b"}}}}},
           {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v1"}}}}}});
  Shell shell;
  shell.cluster = [&api]() -> absl::StatusOr<std::unique_ptr<kube::KubeClient>> { return api.Client(); };
  CHECK_THAT(shell.Run({"allow", "pvc-1"}),
             Catch::Contains("volume pvc-1 may be moved") && Catch::Contains("n1.a,n2.b"));
  CHECK_THAT(shell.Run({"allow", "--all"}), !Catch::Contains("error"));
  CHECK_THAT(shell.Run({"allow", "pvc-2"}), Catch::StartsWith("error: ") && Catch::Contains("NOT_FOUND"));
}

TEST_CASE("a server that is not there is an error with its code") {
  Shell shell;
  shell.server.reset();
  CHECK_THAT(shell.Run({"status"}), Catch::StartsWith("error: ") && Catch::Contains("UNAVAILABLE"));
}

TEST_CASE("a wrong option is answered with what is wanted") {
  struct Row {
    std::vector<std::string> arguments;
    std::string wanted;
  };
  const Row rows[] = {
      {{"--mode=both"}, "controller,node,all"},
      {{"--mode=all", "--endpoint=tcp://x"}, "unix:///absolute/path"},
      {{"--mode=all", "--endpoint=/s.sock", "--array-name=A"}, "a-z, 0-9 and -"},
      {{"--mode=all", "--endpoint=/s.sock", "--pool=../pool"}, "absolute path"},
      {{"--mode=all", "--endpoint=/s.sock", "--portal=host"}, "address:port"},
      {{"--mode=all", "--endpoint=/s.sock", "--tgt-control-port=-1"}, "0"},
      {{"--mode=all", "--endpoint=/s.sock", "--log-level=loud"}, "debug"},
      {{"--mode=all", "--endpoint=/s"}, "ends in .sock"},
      {{"--mode=all", "--endpoint=/s.sock", "--csi-versions=2"}, "0.3"},
      {{"--mode=all", "--endpoint=/s.sock", "--csi-v0-name=-x"}, "io.lunkeeper.csi"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-partitioned=shoot"}, "fence,hold,trust-kubernetes"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-over-budget=all"}, "one-by-one,stop"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-budget-percent=0"}, "1 to 100"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-mass-percent=101"}, "1 to 100"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-graceful=-1"}, "1 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-silence=2.4"}, "2.5 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-silence=nan"}, "2.5 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-slow-silence=9"}, "10 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-never-met-silence=29"}, "30 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-probation=1"}, "10 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-partition-grace=9"}, "10 to 86400"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-owner-kinds=statefulset"}, "such as StatefulSet"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-owner-kinds=Job,Cluster."}, "\"Cluster.\": want"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-owner-kinds=Job. x"}, "such as StatefulSet"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-owner-kinds=.apps"}, "such as StatefulSet"},
      {{"--mode=all", "--endpoint=/s.sock", "--failover-owner-kinds=*.apps"}, "such as StatefulSet"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.arguments.back());
    CLI::App app;
    ServeOptions options;
    AddServeOptions(&app, &options);
    std::vector<std::string> arguments(row.arguments.rbegin(), row.arguments.rend());
    std::string error;
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& wrong) {
      error = wrong.what();
    }
    CHECK_THAT(error, Catch::Contains(row.wanted));
  }
}

TEST_CASE("an agent in a pod may be told its node's address in brackets, whatever kind it is of") {
  CLI::App app;
  ArrayAgentOptions options;
  AddArrayOptions(&app, &options);
  app.parse(
      "--name=a --pool=/p --portal=[10.0.0.5]:3260 --listen=[fd00::5]:7480 --metrics-address=[10.0.0.5]:9810 "
      "--tls-cert=/c --tls-key=/k --tls-ca=/a",
      false);
  CHECK(options.serve.portals == std::vector<std::string>{"10.0.0.5:3260"});
  CHECK(options.listen == "[fd00::5]:7480");
  CHECK(options.serve.metrics_address == "10.0.0.5:9810");
}

TEST_CASE("an option may come from the environment, and the command line goes before it") {
  ::setenv("LUNKEEPER_LOG_LEVEL", "debug", 1);
  ::setenv("LUNKEEPER_CSI_VERSIONS", "0.3", 1);
  ::setenv("LUNKEEPER_START_DATAPATH", "true", 1);
  ::setenv("LUNKEEPER_STOP_SECONDS", "7", 1);
  CLI::App app;
  ServeOptions options;
  AddServeOptions(&app, &options);
  app.parse("--mode=node --endpoint=/s.sock --stop-seconds=5", false);
  CHECK(options.log_level == "debug");
  CHECK(options.csi_versions == std::vector<std::string>{"0.3"});
  CHECK(options.start_datapath);
  CHECK(options.stop_seconds == 5);
  CHECK(app.help().find("Env:LUNKEEPER_LOG_LEVEL") != std::string::npos);
  CHECK(app.help().find("Env:NODE_NAME") != std::string::npos);  // its own
  ::setenv("LUNKEEPER_LOG_LEVEL", "loud", 1);
  CLI::App wrong;
  ServeOptions others;
  AddServeOptions(&wrong, &others);
  CHECK_THROWS_AS(wrong.parse("--mode=node --endpoint=/s.sock", false), CLI::ParseError);
  for (const char* name : {"LUNKEEPER_LOG_LEVEL", "LUNKEEPER_CSI_VERSIONS", "LUNKEEPER_START_DATAPATH",
                           "LUNKEEPER_STOP_SECONDS"})
    ::unsetenv(name);
}

TEST_CASE("each mode names the options it needs") {
  ServeOptions options;
  options.mode = "controller";
  CHECK_THAT(std::string(CheckComplete(options).message()), Catch::Contains("--pool"));
  options.arrays_file = "/arrays.json";
  CHECK(CheckComplete(options).ok());
  options.pool = "/pool";
  CHECK_THAT(std::string(CheckComplete(options).message()), Catch::Contains("--arrays"));
  options.arrays_file.clear();
  options.portals = {"10.0.0.5:3260"};
  options.array_names = {"a", "b"};
  CHECK_THAT(std::string(CheckComplete(options).message()), Catch::Contains("--array-name"));
  options.mode = "node";
  CHECK_THAT(std::string(CheckComplete(options).message()), Catch::Contains("--node-name"));
  options.node_name = "a";
  CHECK(CheckComplete(options).ok());
}

}  // namespace lunkeeper
