// The coordinator as it is served and used: real TLS on loopback, a fake array behind it.

#include <atomic>
#include <future>
#include <set>

#include "base/testing/captured_log.h"
#include "base/testing/stalling_proxy.h"
#include "fencing/agent/heartbeat_lun_access.h"
#include "plugin/testing/coordinator_rig.h"

namespace lunkeeper {
namespace {

using testing::CapturedLog;
using testing::Eventually;

absl::Time In(absl::Duration time) { return absl::Now() + time; }

// A node with its connection to the rig's controllers.
struct ConnectedNode {
  ConnectedNode(CoordinatorRig& rig, const std::vector<uint16_t>& ports, const NodeId& id)
      : replicas(rig.Connect(ports)), grants(MakeCoordinatorGrantSource(replicas->table(), id)) {}
  ConnectedNode(CoordinatorRig& rig, const std::vector<uint16_t>& ports)
      : ConnectedNode(rig, ports, rig.node) {}

  absl::StatusOr<Grant> Acquire(const VolumeId& volume, absl::Duration wait = absl::Seconds(20)) {
    return grants->Acquire(volume, {Access::kExclusive}, wait);
  }
  std::future<absl::StatusOr<Grant>> AcquireLater(const VolumeId& volume,
                                                  absl::Duration wait = absl::Seconds(60)) {
    return std::async(std::launch::async, [this, volume, wait] { return Acquire(volume, wait); });
  }

  std::unique_ptr<Replicas> replicas;
  std::unique_ptr<GrantSource> grants;
};

// By the test's word.
struct UnusedVolumes final : VolumeUseCheck {
  absl::Status CheckUse(const std::string& machine, const VolumeId& volume) override {
    if (!volumes.contains(volume)) return absl::OkStatus();
    return absl::FailedPreconditionError(machine + " has no pod with it");
  }
  std::set<VolumeId> volumes;
};

}  // namespace

TEST_CASE("a node gets a grant, sees that it has it and gives it back, and no secret is in the log") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  const CapturedLog log(rig.folder / "log");
  const auto grant = node.Acquire(volume);
  REQUIRE(grant.ok());
  const Grant stored = rig.array.ListGrants({volume, rig.node})->at(0);
  CHECK(grant->connection == stored.connection);
  CHECK(grant->generation == stored.generation);
  CHECK(grant->serial == stored.serial);
  CHECK(grant->size_bytes == stored.size_bytes);
  CHECK(grant->volume == volume);
  CHECK(grant->node == rig.node);
  const auto held = node.grants->Held(volume, In(absl::Seconds(10)));
  REQUIRE(held.ok());
  REQUIRE(held->size() == 1);
  CHECK(held->at(0).target == grant->connection.target);
  CHECK(held->at(0).owner == GrantOwner::kNode);
  CHECK(node.Acquire(volume)->generation == grant->generation);
  REQUIRE(node.grants->Release(volume, grant->generation, In(absl::Seconds(10))).ok());
  CHECK(node.grants->Held(VolumeId(), In(absl::Seconds(10)))->empty());
  CHECK_THAT(log.Text(), Catch::Contains("lunkeeper.coordinator.v1.Coordinator/Acquire") &&
                             Catch::Contains("volume_id=" + volume.value()) &&
                             Catch::Contains("node=" + rig.node.value()));
  CHECK_THAT(log.Text(), !Catch::Contains(grant->connection.chap.secret) && !Catch::Contains("token-1"));
}

TEST_CASE("a volume that no pod of the node uses is refused, and what the node holds is its own") {
  CoordinatorRig rig;
  UnusedVolumes unused;
  ConnectedNode node(rig, {rig.AddController(rig.ManyNodes(), {.uses = &unused}).port});
  const VolumeId used = rig.MakeVolume("used"), other = rig.MakeVolume("other");
  unused.volumes = {other};
  const auto refused = node.Acquire(other);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("node-1 has no pod"));
  CHECK(rig.array.ListGrants({other, {}})->empty());
  const auto grant = node.Acquire(used);
  REQUIRE(grant.ok());
  // Its pod goes, and the call that is repeated, the look and the release do not need one.
  unused.volumes.insert(used);
  CHECK(node.Acquire(used)->generation == grant->generation);
  CHECK(node.grants->Held(used, In(absl::Seconds(10)))->size() == 1);
  CHECK(node.grants->Release(used, grant->generation, In(absl::Seconds(10))).ok());
  CHECK(absl::IsFailedPrecondition(node.Acquire(used).status()));
  // Nor does it wait in line for one that another node has.
  rig.Occupy(other);
  const absl::Time begin = absl::Now();
  CHECK(absl::IsFailedPrecondition(node.Acquire(other).status()));
  CHECK(absl::Now() - begin < absl::Seconds(10));
}

TEST_CASE("a node gets no more volumes of an array than it may have") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController(rig.ManyNodes(), {.most_volumes = 1}).port});
  const VolumeId first = rig.MakeVolume("first"), second = rig.MakeVolume("second");
  const auto grant = node.Acquire(first);
  REQUIRE(grant.ok());
  const auto refused = node.Acquire(second, absl::ZeroDuration());
  INFO(refused.status());
  CHECK(absl::IsResourceExhausted(refused.status()));
  CHECK(rig.array.ListGrants({second, {}})->empty());
  CHECK(node.Acquire(first)->generation == grant->generation);
  REQUIRE(node.grants->Release(first, grant->generation, In(absl::Seconds(10))).ok());
  CHECK(node.Acquire(second).ok());
}

TEST_CASE("a release may be repeated, and a late one leaves the newer grant alone") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  const Generation first = node.Acquire(volume)->generation;
  for (int i = 0; i < 2; ++i) REQUIRE(node.grants->Release(volume, first, In(absl::Seconds(10))).ok());
  const Generation second = node.Acquire(volume)->generation;
  REQUIRE(node.grants->Release(volume, first, In(absl::Seconds(10))).ok());
  CHECK(node.grants->Held(volume, In(absl::Seconds(10)))->at(0).generation == second);
  CHECK(absl::IsInvalidArgument(node.grants->Release(volume, 0, In(absl::Seconds(10)))));
  CHECK(node.grants->Release(VolumeId("gone"), 7, In(absl::Seconds(10))).ok());
}

TEST_CASE("what the orchestrator took for a node is held by it, and not its to give back") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  const auto grant = rig.array.AcquireGrant({volume, rig.node, Access::kExclusive, GrantOwner::kOrchestrator},
                                            absl::ZeroDuration());
  REQUIRE(grant.ok());
  CHECK(node.grants->Held(volume, In(absl::Seconds(10)))->at(0).owner == GrantOwner::kOrchestrator);
  REQUIRE(node.grants->Release(volume, grant->generation, In(absl::Seconds(10))).ok());
  CHECK(rig.array.ListGrants({})->size() == 1);
}

TEST_CASE("a wrong, expired or foreign token is refused, said, and changes nothing") {
  CoordinatorRig rig;
  rig.reviewer.AddNode("expired", "node-1", -absl::Seconds(1));
  rig.reviewer.Add("foreign", {kTestAccount, "node-1", absl::InfiniteFuture()}, "vault");
  rig.reviewer.Add("web", {"system:serviceaccount:shop:web", "node-1", absl::InfiniteFuture()});
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  for (const auto& [token, why] : std::map<std::string, std::string>{{"unknown", "unknown"},
                                                                     {"expired", "expired"},
                                                                     {"foreign", "not meant for"},
                                                                     {"web", "shop:web"}}) {
    rig.WriteToken(token);
    const absl::Status status = node.Acquire(volume).status();
    CAPTURE(token, status);
    CHECK(absl::IsUnauthenticated(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains(why));
  }
  rig.WriteToken("");
  CHECK(absl::IsUnauthenticated(node.Acquire(volume).status()));
  CHECK(rig.array.ListGrants({})->empty());
}

TEST_CASE("a node that claims another's name is refused everything, and nothing changes") {
  CoordinatorRig rig;
  const uint16_t port = rig.AddController().port;
  const VolumeId mine = rig.MakeVolume("mine");
  const VolumeId free = rig.MakeVolume("free");
  rig.Occupy(mine);
  const Generation generation = rig.array.ListGrants({mine, {}})->at(0).generation;
  ConnectedNode liar(rig, {port}, rig.other);  // with the token of node-1
  CHECK(absl::IsPermissionDenied(liar.Acquire(free).status()));
  CHECK(absl::IsPermissionDenied(liar.Acquire(mine).status()));
  CHECK(absl::IsPermissionDenied(liar.grants->Held(VolumeId(), In(absl::Seconds(10))).status()));
  const absl::Status released = liar.grants->Release(mine, generation, In(absl::Seconds(10)));
  CHECK(absl::IsPermissionDenied(released));
  CHECK_THAT(std::string(released.message()), Catch::Contains("node-2") && Catch::Contains("node-1"));
  CHECK(rig.array.ListGrants({})->size() == 1);
  for (const char* odd : {"node-1", "node-1.", ".x", "node-1.a b", ""}) {
    CAPTURE(odd);
    ConnectedNode stranger(rig, {port}, NodeId(odd));
    CHECK_FALSE(stranger.Acquire(free).ok());
  }
  CHECK(rig.array.ListGrants({})->size() == 1);
}

TEST_CASE("a node is told of its own heartbeat LUN on an array that there is, and of no other") {
  CoordinatorRig rig;
  const Controller& controller = rig.AddController();
  const auto replicas = rig.Connect({controller.port});
  const HeartbeatLunAccess ask = AskForHeartbeatLun(replicas->table(), rig.node);
  const auto access = ask(fencing::ArrayId("fake"), In(absl::Seconds(20)));
  REQUIRE(access.ok());
  CHECK((*access == *rig.array.OpenHeartbeatLun({rig.node, true})));
  CHECK(absl::IsNotFound(ask(fencing::ArrayId("other"), In(absl::Seconds(20))).status()));
  const HeartbeatLunAccess lie = AskForHeartbeatLun(replicas->table(), rig.other);
  CHECK(absl::IsPermissionDenied(lie(fencing::ArrayId("fake"), In(absl::Seconds(20))).status()));
}

TEST_CASE("a mount needs no API server once the node's token is known") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  REQUIRE(node.grants->Held(VolumeId(), In(absl::Seconds(10))).ok());
  rig.reviewer.down = true;
  CHECK(node.Acquire(rig.MakeVolume("v")).ok());
}

TEST_CASE("a token that was replaced in its file is used from then on") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  rig.reviewer.AddNode("short", "node-1", absl::Milliseconds(300));
  rig.reviewer.AddNode("next", "node-1");
  rig.WriteToken("short");
  REQUIRE(node.grants->Held(VolumeId(), In(absl::Seconds(10))).ok());
  REQUIRE(Eventually([&] { return !node.grants->Held(VolumeId(), In(absl::Seconds(10))).ok(); }));
  rig.WriteToken("next");
  CHECK(node.grants->Held(VolumeId(), In(absl::Seconds(10))).ok());
}

TEST_CASE("a server certificate that was replaced is shown to new connections") {
  CoordinatorRig rig;
  rig.authority.Issue(rig.folder / "coordinator", "DNS:somebody.else");
  ConnectedNode node(rig, {rig.AddController().port});
  CHECK(absl::IsUnavailable(node.grants->Held(VolumeId(), In(absl::Seconds(1))).status()));
  rig.authority.Issue(rig.folder / "coordinator", "IP:127.0.0.1");
  CHECK(Eventually([&] { return node.grants->Held(VolumeId(), In(absl::Seconds(2))).ok(); }));
}

TEST_CASE("a controller whose certificate somebody else signed is told nothing") {
  CoordinatorRig rig;
  const TestAuthority stranger(rig.folder, "stranger");
  stranger.Issue(rig.folder / "coordinator", "IP:127.0.0.1");
  ConnectedNode node(rig, {rig.AddController().port});
  CHECK(absl::IsUnavailable(node.Acquire(rig.MakeVolume("v"), absl::Seconds(1)).status()));
  CHECK(rig.reviewer.reviews == 0);
}

TEST_CASE("files that are no certificates are named at the start") {
  CoordinatorRig rig;
  rig.WriteToken("nonsense", "bad.crt");
  const std::string bad = rig.folder / "bad.crt", stem = rig.folder / "coordinator";
  for (const absl::Status& status :
       {TlsClient(bad).status(), TlsClient("/no/such").status(), TlsServer(bad, stem + ".key").status(),
        TlsServer(stem + ".crt", bad).status()}) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("TLS file /"));
  }
}

TEST_CASE("a volume that is held all the time is refused with the holder's name") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  rig.Occupy(volume);
  const absl::Status status = node.Acquire(volume, absl::Milliseconds(200)).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains(rig.other.value()));
}

TEST_CASE("when the replica that a node waits at is killed, the other one gives it the volume") {
  CoordinatorRig rig;
  Controller& first = rig.AddController();
  Controller& second = rig.AddController();
  ConnectedNode node(rig, {first.port, second.port});
  const VolumeId volume = rig.MakeVolume("v");
  rig.Occupy(volume);
  auto grant = node.AcquireLater(volume);
  REQUIRE(Eventually([&] { return rig.array.Waiting() == 1; }));
  constexpr char kWaiting[] =
      "lunkeeper_rpc_running{method=\"lunkeeper.coordinator.v1.Coordinator/Acquire\"} 1";
  const auto waits_at = [&](Controller& at) {
    return at.metrics.ToText().find(kWaiting) != std::string::npos;
  };
  const bool at_first = waits_at(first);
  (at_first ? first : second).Kill();
  REQUIRE(Eventually([&] { return rig.array.Waiting() == 1 && waits_at(at_first ? second : first); }));
  rig.Vacate(volume);
  REQUIRE(grant.get().ok());
  CHECK(rig.array.ListGrants({})->size() == 1);
}

TEST_CASE("a replica that stops sends those who wait to another") {
  CoordinatorRig rig;
  Controller& first = rig.AddController();
  ConnectedNode node(rig, {first.port, rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  rig.Occupy(volume);
  auto grant = node.AcquireLater(volume);
  REQUIRE(Eventually([&] { return rig.array.Waiting() == 1; }));
  first.coordinator->SendNodesAway();
  CHECK(first.server->Stop(absl::Seconds(10)));
  REQUIRE(Eventually([&] { return rig.array.Waiting() == 1; }));
  rig.Vacate(volume);
  CHECK(grant.get().ok());
}

TEST_CASE("a replica that hangs is left for another within seconds") {
  CoordinatorRig rig;
  StallingProxy hangs(rig.AddController().port);
  ConnectedNode node(rig, {hangs.port(), rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  REQUIRE(node.grants->Held(VolumeId(), In(absl::Seconds(10))).ok());
  hangs.Stall(true);
  const absl::Time began = absl::Now();
  CHECK(node.Acquire(volume, absl::Seconds(30)).ok());
  CHECK(absl::Now() - began < absl::Seconds(15));
  CHECK(node.grants->Held(volume, In(absl::Seconds(10)))->size() == 1);
}

TEST_CASE("when no controller answers, the error says which were asked, in time") {
  CoordinatorRig rig;
  const uint16_t gone = rig.AddController().port;
  rig.controllers.clear();
  ConnectedNode node(rig, {gone});
  const absl::Time began = absl::Now();
  const absl::Status status = node.grants->Held(VolumeId("v"), In(absl::Seconds(1))).status();
  CHECK(absl::Now() - began < absl::Seconds(10));
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Contains(absl::StrCat("127.0.0.1:", gone)) && Catch::Contains("volume v"));
}

TEST_CASE("an array that does not answer for a while is waited for") {
  CoordinatorRig rig;
  ConnectedNode node(rig, {rig.AddController().port});
  const VolumeId volume = rig.MakeVolume("v");
  rig.array.FailWith(absl::UnavailableError("the array restarts"));
  auto grant = node.AcquireLater(volume);
  CHECK(absl::IsUnavailable(node.grants->Held(volume, In(absl::Milliseconds(500))).status()));
  rig.array.FailWith(absl::OkStatus());
  CHECK(grant.get().ok());
}

TEST_CASE("a caller who has gone leaves nothing behind, and the next in line gets the volume") {
  CoordinatorRig rig;
  StallingProxy proxy(rig.AddController().port);
  const VolumeId volume = rig.MakeVolume("v");
  rig.Occupy(volume);
  ConnectedNode gone(rig, {proxy.port()});
  auto never = gone.AcquireLater(volume, absl::Seconds(6));
  REQUIRE(Eventually([&] { return rig.array.Waiting() == 1; }));
  proxy.Stall(true);  // it does not come back
  proxy.CloseAll();
  CHECK(Eventually([&] { return rig.array.Waiting() == 0; }, absl::Seconds(4)));
  rig.Vacate(volume);
  CHECK(rig.array.ListGrants({})->empty());
  CHECK(absl::IsUnavailable(never.get().status()));
}

}  // namespace lunkeeper
