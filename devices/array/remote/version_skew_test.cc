// An agent and a client that are one version apart. The older side knows none of the fields below: it sends
// none of them, and what it does not know in a message is as if it were not there. So one that takes them out
// of every request and every answer stands for an older agent before a newer client, and for an older client
// before a newer agent.
//
// A new field of a message is added here too, until no release without it is left.

#include <catch2/catch.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/array/publish_context.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/listed_names.h"
#include "devices/array/remote/name_messages.h"
#include "devices/array/remote/testing/remote_array_fixture.h"
#include "devices/array/remote/wire.h"
#include "devices/node_id.h"

namespace lunkeeper::testing {
namespace {

namespace v1 = array::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const std::set<std::string> kNewFields = {
    "lunkeeper.array.v1.VolumeSpec.uses",
    "lunkeeper.array.v1.VolumeSpec.fs_type",
    "lunkeeper.array.v1.CapacityResponse.creatable_bytes",
    "lunkeeper.array.v1.Snapshot.group_id",
    "lunkeeper.array.v1.VolumeSpec.limits",
    "lunkeeper.array.v1.VolumeSpec.claim",
    "lunkeeper.array.v1.VolumeSpec.digests",
    "lunkeeper.array.v1.ModifyVolumeRequest.digests",
    "lunkeeper.array.v1.Grant.limits",
    "lunkeeper.array.v1.Grant.node_uid",
    "lunkeeper.array.v1.Fence.node_uid",
    "lunkeeper.array.v1.Fence.fenced_by",
    "lunkeeper.array.v1.Fence.reason",
    "lunkeeper.array.v1.Fence.fenced_unix_nanos",
    "lunkeeper.array.v1.Fence.of_machine",
    "lunkeeper.array.v1.AcquireRequest.mode",
    "lunkeeper.array.v1.AcquireRequest.node_uid",
    "lunkeeper.array.v1.FenceRequest.node_uid",
    "lunkeeper.array.v1.FenceRequest.fenced_by",
    "lunkeeper.array.v1.FenceRequest.reason",
    "lunkeeper.array.v1.FenceRequest.all_volumes",
    "lunkeeper.array.v1.ListGrantsRequest.holders_only",
    "lunkeeper.array.v1.ListGrantsRequest.known_version",
    "lunkeeper.array.v1.ListGrantsResponse.version",
    "lunkeeper.array.v1.ListGrantsResponse.unchanged",
    "lunkeeper.array.v1.OpenHeartbeatLunRequest.signs",
    "lunkeeper.array.v1.SessionsRequest.unseen_is_unknown",
    "lunkeeper.array.v1.SessionsResponse.unseen",
    "lunkeeper.devices.v1.Connection.other_portals",
    "lunkeeper.devices.v1.Connection.target_chap_user",
    "lunkeeper.devices.v1.Connection.target_chap_secret",
    "lunkeeper.devices.v1.Connection.signing_key",
    "lunkeeper.devices.v1.Connection.digests",
    "lunkeeper.devices.v1.Connection.peer_portals",
};

void DropNewFields(Message* message) {
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (kNewFields.contains(field->full_name())) {
      reflection->ClearField(message, field);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    } else if (!field->is_repeated()) {
      DropNewFields(reflection->MutableMessage(message, field));
    } else {
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i)
        DropNewFields(reflection->MutableRepeatedMessage(message, field, i));
    }
  }
}

// The calls whose messages have grown, and the ones that the tests need.
class OlderAgent : public v1::ArrayService::Service {
 public:
  explicit OlderAgent(v1::ArrayService::Service& real) : real_(real) {}

#define PASS_ON(Call, Request, Response)                                                              \
  grpc::Status Call(grpc::ServerContext* context, const v1::Request* request, v1::Response* response) \
      override {                                                                                      \
    v1::Request known = *request;                                                                     \
    DropNewFields(&known);                                                                            \
    const grpc::Status status = real_.Call(context, &known, response);                                \
    DropNewFields(response);                                                                          \
    return status;                                                                                    \
  }
  PASS_ON(CreateVolume, CreateVolumeRequest, VolumeResponse)
  PASS_ON(GetVolume, GetVolumeRequest, VolumeResponse)
  PASS_ON(ListVolumes, ListVolumesRequest, ListVolumesResponse)
  PASS_ON(CreateSnapshot, CreateSnapshotRequest, SnapshotResponse)
  PASS_ON(ListSnapshots, ListSnapshotsRequest, ListSnapshotsResponse)
  PASS_ON(Acquire, AcquireRequest, AcquireResponse)
  PASS_ON(Release, ReleaseRequest, ReleaseResponse)
  PASS_ON(ListGrants, ListGrantsRequest, ListGrantsResponse)
  PASS_ON(BeginTerm, BeginTermRequest, BeginTermResponse)
  PASS_ON(Fence, FenceRequest, FenceResponse)
  PASS_ON(Unfence, UnfenceRequest, UnfenceResponse)
  PASS_ON(ListFences, ListFencesRequest, ListFencesResponse)
  PASS_ON(Sessions, SessionsRequest, SessionsResponse)
  PASS_ON(OpenHeartbeatLun, OpenHeartbeatLunRequest, OpenHeartbeatLunResponse)

 protected:
  v1::ArrayService::Service& real_;
};

// Knows limits, and so how to modify a volume, but no digests.
class AgentWithoutDigests final : public OlderAgent {
 public:
  using OlderAgent::OlderAgent;
  PASS_ON(ModifyVolume, ModifyVolumeRequest, VolumeResponse)
};
#undef PASS_ON

template <class Agent>
struct BesideAgent : RemoteArrayFixture {
  BesideAgent() {
    agent.Stop();
    agent.Wrap([](auto& real) { return std::make_unique<Agent>(real); });
    agent.Start();
    REQUIRE(Eventually([&] { return array->fences().ListFences().ok(); }));
  }
};
using OneVersionApart = BesideAgent<OlderAgent>;
using BesideAgentWithoutDigests = BesideAgent<AgentWithoutDigests>;

VolumeSpec SpecOf(const std::string& name) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 1 << 20;
  spec.uses.Add(Access::kExclusive, VolumeMode::kFilesystem);
  spec.fs_type = "xfs";
  spec.claim = "db/data-0";
  return spec;
}

}  // namespace

TEST_CASE_METHOD(OneVersionApart, "an agent that knows no groups of snapshots is said to be too old") {
  const auto made = array->volumes().CreateVolume(SpecOf("v"));
  REQUIRE(made.ok());
  const absl::Status refused = array->groups().CreateGroup("g", {made->id}).status();
  CHECK(absl::IsUnimplemented(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("older version") && Catch::Contains("upgrade"));
  CHECK(absl::IsUnimplemented(array->groups().GetGroup(SnapshotGroupId("a1-g0123456789abcdef")).status()));
}

TEST_CASE_METHOD(OneVersionApart, "an agent that knows no lists of blocks is said to be too old") {
  const SnapshotId any("a1-s0123456789abcdef");
  CHECK(absl::IsUnimplemented(array->blocks().ListBlocks({.snapshot = any}).status()));
}

// "No" from an agent that does not know the question would make a second volume of the name elsewhere.
TEST_CASE_METHOD(OneVersionApart, "an agent that cannot be asked for a name is asked for its lists") {
  const auto find = [&](NamedKind kind, const char* name) {
    const auto found = array->names().FindNamed(kind, name);
    INFO(found.status());
    REQUIRE(found.ok());
    return *found;
  };
  std::vector<VolumeId> volumes;
  for (int i = 0; i < 1002; ++i) {  // more than one page
    const auto made = fake.CreateVolume(SpecOf(absl::StrCat("v", i)));
    REQUIRE(made.ok());
    volumes.push_back(made->id);
  }
  CHECK(find(NamedKind::kVolume, "v0") == volumes.front().value());
  CHECK(find(NamedKind::kVolume, "v1001") == volumes.back().value());
  CHECK(find(NamedKind::kVolume, "v1002").empty());
  const auto snapshot = array->volumes().CreateSnapshot("s", volumes.front());
  REQUIRE(snapshot.ok());
  CHECK(find(NamedKind::kSnapshot, "s") == snapshot->id.value());
  CHECK(find(NamedKind::kSnapshot, "t").empty());
  CHECK(find(NamedKind::kSnapshotGroup, "s").empty());  // it knows no groups
  fake.FailWith(absl::UnavailableError("restoring"));
  CHECK(absl::IsUnavailable(array->names().FindNamed(NamedKind::kVolume, "v0").status()));
}

TEST_CASE("a group is found by the list of its snapshots") {
  FakeArray fake;
  const auto volume = fake.CreateVolume(SpecOf("v"));
  const auto group = fake.CreateGroup("g", {volume->id}), other = fake.CreateGroup("h", {volume->id});
  REQUIRE(group.ok());
  CHECK(*FindListed(fake, fake, NamedKind::kSnapshotGroup, "g") == group->id.value());
  CHECK(*FindListed(fake, fake, NamedKind::kSnapshotGroup, "h") == other->id.value());
  CHECK(FindListed(fake, fake, NamedKind::kSnapshotGroup, "i")->empty());
}

TEST_CASE_METHOD(OneVersionApart, "a volume is made, and made again, without what one side does not know") {
  const auto made = array->volumes().CreateVolume(SpecOf("v"));
  REQUIRE(made.status() == absl::OkStatus());
  CHECK(made->spec.uses.empty());
  CHECK(made->spec.claim.empty());
  CHECK(array->volumes().CreateVolume(SpecOf("v"))->id == made->id);
  CHECK(IsMadeAs(array->volumes().ListVolumes("", 0)->items.front().spec, SpecOf("v")));
}

TEST_CASE_METHOD(OneVersionApart, "an older agent's volumes have no limits, and it says that it sets none") {
  VolumeSpec spec = SpecOf("v");
  spec.limits.iops = 200;
  const auto made = array->volumes().CreateVolume(spec);
  REQUIRE(made.status() == absl::OkStatus());
  CHECK(made->spec.limits == VolumeLimits());
  CHECK(absl::IsUnimplemented(array->volumes().ModifyVolume(made->id, {.max_iops = 200}).status()));
}

TEST_CASE_METHOD(BesideAgentWithoutDigests,
                 "an older agent's volumes have no digests, and none are promised") {
  VolumeSpec spec = SpecOf("v");
  spec.digests = Digests::kAll;
  const auto made = array->volumes().CreateVolume(spec);
  REQUIRE(made.status() == absl::OkStatus());
  CHECK(made->spec.digests == Digests::kNone);
  const auto refused = array->volumes().ModifyVolume(made->id, {.digests = Digests::kAll});
  CHECK(absl::IsUnimplemented(refused.status()));
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("knows no digests: upgrade"));
  CHECK(fake.GetVolume(made->id)->spec.digests == Digests::kNone);
}

// By a node, or through a controller, whose program is one version older.
TEST_CASE_METHOD(OneVersionApart, "a volume with digests is granted as before to who knows none") {
  VolumeSpec spec = SpecOf("v");
  spec.digests = Digests::kAll;
  const VolumeId volume = fake.CreateVolume(spec)->id;
  const auto grant = array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK(grant->connection.digests == Digests::kNone);
  CHECK_FALSE(grant->connection.chap.secret.empty());
}

TEST_CASE_METHOD(OneVersionApart, "a grant is given, and settles what the volume is for") {
  const VolumeId volume = array->volumes().CreateVolume(SpecOf("v"))->id;
  GrantRequest request = For(volume, kNodeA);
  request.mode = VolumeMode::kFilesystem;
  request.node_uid = "uid-1";
  const auto grant = array->grants().AcquireGrant(request, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK_FALSE(grant->connection.chap.secret.empty());
  CHECK(grant->connection.target_chap.user.empty());
  CHECK(FromPublishContext(volume, ToPublishContext(*grant)).ok());
  CHECK(fake.GetVolume(volume)->spec.uses.Allow(Access::kExclusive, VolumeMode::kBlock));
  CHECK_FALSE(fake.GetVolume(volume)->spec.uses.Allow(Access::kSharedWrite, VolumeMode::kBlock));
  CHECK(array->grants().ListGrants({})->size() == 1);
  CHECK(array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, grant->generation).ok());
  CHECK(fake.ListGrants({})->empty());
}

TEST_CASE_METHOD(OneVersionApart, "a node is fenced and let in again, without a reason") {
  const Term term = *array->fences().BeginTerm("test");
  const auto fence = array->fences().FenceNode(term, {kNodeA, {}, "uid-1", "me", "why not"});
  REQUIRE(fence.status() == absl::OkStatus());
  CHECK(fence->reason.empty());
  REQUIRE(array->fences().ListFences()->size() == 1);
  CHECK(array->fences().UnfenceNode(term, kNodeA, fence->generation).ok());
}

TEST_CASE_METHOD(OneVersionApart, "an agent that cannot fence a machine is not believed to have done so") {
  const Term term = *array->fences().BeginTerm("test");
  const auto fence = array->fences().FenceNode(term, {.node = MachineId("node-a"), .all_volumes = true});
  CHECK(absl::IsUnimplemented(fence.status()));
  // Its next version would enforce what it has stored.
  CHECK(fake.ListFences()->empty());
}

TEST_CASE_METHOD(OneVersionApart,
                 "a fence of a machine counts only in the list of an agent that knows such") {
  const Term term = *array->fences().BeginTerm("test");
  REQUIRE(fake.FenceNode(term, {.node = MachineId("node-a"), .all_volumes = true}).ok());
  REQUIRE(array->fences().FenceNode(term, {.node = kNodeB}).ok());
  const auto fences = array->fences().ListFences();
  REQUIRE(fences->size() == 1);
  CHECK(fences->front().node == kNodeB);
}

TEST_CASE_METHOD(OneVersionApart, "a heartbeat LUN is opened, and nobody signs") {
  const auto access = array->fences().OpenHeartbeatLun({.node = kNodeA, .signs = true});
  REQUIRE(access.status() == absl::OkStatus());
  CHECK_FALSE(access->target.empty());
  CHECK(access->signing_key.empty());
}

// Either way round: sessions that are missing are no longer there to who does not know that they may be
// unseen.
TEST_CASE_METHOD(OneVersionApart, "an older side gets all sessions or an error") {
  const VolumeId volume = array->volumes().CreateVolume(SpecOf("v"))->id;
  REQUIRE(array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  CHECK(array->grants().ListSeenSessions()->sessions.size() == 1);
  fake.HideSessions(volume, true);
  CHECK(absl::IsUnavailable(array->grants().ListSeenSessions().status()));
  CHECK(absl::IsUnavailable(array->grants().ListSessions().status()));
}

TEST_CASE("between two of one version all of it arrives") {
  RemoteArrayFixture fixture;
  const auto made = fixture.array->volumes().CreateVolume(SpecOf("v"));
  REQUIRE(made.ok());
  VolumeSpec spec = SpecOf("v");
  spec.size_bytes = made->spec.size_bytes;
  CHECK(made->spec == spec);
  GrantRequest request = For(made->id, kNodeA);
  request.mode = VolumeMode::kBlock;
  CHECK(absl::IsFailedPrecondition(
      fixture.array->grants().AcquireGrant(request, absl::ZeroDuration()).status()));
  request.mode = VolumeMode::kFilesystem;
  request.node_uid = "uid-1";
  CHECK(fixture.array->grants().AcquireGrant(request, absl::ZeroDuration())->node_uid == "uid-1");
  const Term term = *fixture.array->fences().BeginTerm("test");
  const std::string umlauts = "ä";
  std::string reason = "line\nbreak and";
  while (reason.size() < kLongestReason + 7) reason += umlauts;
  const auto fence = fixture.array->fences().FenceNode(term, {kNodeA, {}, "uid-1", "me", reason});
  REQUIRE(fence.status() == absl::OkStatus());
  CHECK(fence->node_uid == "uid-1");
  CHECK(fence->fenced_by == "me");
  CHECK(fence->reason.substr(0, 16) == "line break andä");
  CHECK(fence->reason.size() <= kLongestReason);
  CHECK(fence->fenced_at > absl::UnixEpoch());
  const NodeId machine = MachineId(MachineOf(kNodeA));
  const auto closed = fixture.array->fences().FenceNode(term, {.node = machine, .all_volumes = true});
  REQUIRE(closed.status() == absl::OkStatus());
  CHECK(closed->volumes == std::vector<VolumeId>{made->id});
  CHECK(fixture.array->fences().ListFences()->size() == 2);
}

TEST_CASE("a value that is not known costs an answer nothing, and a request is refused for it") {
  v1::Grant grant;
  grant.set_volume_id("a1-v1");
  grant.set_access(static_cast<v1::Access>(99));
  grant.set_owner(static_cast<v1::GrantOwner>(99));
  grant.set_durability(static_cast<v1::Durability>(99));
  const Grant read = wire::FromMessage(grant);
  CHECK(read.volume == VolumeId("a1-v1"));
  CHECK(read.access == Access::kExclusive);
  CHECK(read.owner == GrantOwner::kOrchestrator);
  CHECK(read.durability == Durability::kCached);

  v1::Volume volume;
  volume.set_volume_id("a1-v1");
  volume.mutable_spec()->set_provisioning(static_cast<v1::Provisioning>(99));
  v1::VolumeUse* use = volume.mutable_spec()->add_uses();
  use->set_access(static_cast<v1::Access>(99));
  use->set_mode(v1::VOLUME_MODE_BLOCK);
  CHECK(wire::FromMessage(volume).id == VolumeId("a1-v1"));
  CHECK(wire::FromMessage(volume).spec.provisioning == Provisioning::kThin);

  CHECK(absl::IsInvalidArgument(wire::FromMessage(volume.spec()).status()));
  CHECK(absl::IsInvalidArgument(wire::FromMessage(static_cast<v1::Access>(99)).status()));
  CHECK(absl::IsInvalidArgument(wire::FromMessage(static_cast<v1::GrantOwner>(99)).status()));
  CHECK(absl::IsInvalidArgument(wire::FromMessage(static_cast<v1::VolumeMode>(99)).status()));
  CHECK(absl::IsInvalidArgument(wire::FromMessage(static_cast<v1::NamedKind>(99)).status()));
}

}  // namespace lunkeeper::testing
