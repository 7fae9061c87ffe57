#include "devices/array/publish_context.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

Grant SampleGrant() {
  Grant grant;
  grant.volume = VolumeId("v1");
  grant.node = NodeId("worker-1.0123456789abcdef");
  grant.access = Access::kSharedWrite;
  grant.owner = GrantOwner::kOrchestrator;
  grant.generation = 7;
  grant.connection = {"[::1]:3260", Iqn("iqn.2026-11.io.lunkeeper:a:v1:7"),
                      Iqn("iqn.2026-11.io.lunkeeper:node:w"), 1, ChapCredentials{"user", "sixteen-letters!"}};
  grant.serial = "v1";
  grant.size_bytes = 1u << 30;
  grant.durability = Durability::kSync;
  return grant;
}

TEST_CASE(
    "a grant whose target proves itself comes back with the secret for that, and an older one without") {
  Grant grant = SampleGrant();
  grant.connection.target_chap = {"target", "of-the-target..."};
  PublishContext context = ToPublishContext(grant);
  CHECK((FromPublishContext(grant.volume, context)->connection == grant.connection));
  context.erase("targetChapSecret");
  CHECK(absl::IsInvalidArgument(FromPublishContext(grant.volume, context).status()));
  context.erase("targetChapUser");
  CHECK((FromPublishContext(grant.volume, context)->connection == SampleGrant().connection));
}

TEST_CASE("a grant's digests come back, and a grant without any is as an older controller's") {
  Grant grant = SampleGrant();
  CHECK_FALSE(ToPublishContext(grant).contains("digests"));
  CHECK(FromPublishContext(grant.volume, ToPublishContext(grant))->connection.digests == Digests::kNone);
  for (const Digests digests : {Digests::kHeader, Digests::kAll}) {
    grant.connection.digests = digests;
    CHECK(FromPublishContext(grant.volume, ToPublishContext(grant))->connection == grant.connection);
  }
  PublishContext context = ToPublishContext(grant);
  context["digests"] = "some";
  CHECK(absl::IsInvalidArgument(FromPublishContext(grant.volume, context).status()));
}

TEST_CASE("a grant comes back from its publish context unchanged") {
  const Grant grant = SampleGrant();
  const auto back = FromPublishContext(grant.volume, ToPublishContext(grant));
  REQUIRE(back.ok());
  CHECK(back->volume == grant.volume);
  CHECK(back->node == grant.node);
  CHECK(back->access == grant.access);
  CHECK(back->owner == grant.owner);
  CHECK(back->generation == grant.generation);
  CHECK(back->connection == grant.connection);
  CHECK(back->serial == grant.serial);
  CHECK(back->size_bytes == grant.size_bytes);
  CHECK(back->durability == grant.durability);
}

TEST_CASE("a grant's limits come back, and a grant without any is as an older controller's") {
  Grant grant = SampleGrant();
  CHECK_FALSE(ToPublishContext(grant).contains("maxIops"));
  CHECK(FromPublishContext(grant.volume, ToPublishContext(grant))->limits == VolumeLimits());
  grant.limits = {.iops = 200, .bytes_per_second = 0, .version = 3};
  PublishContext context = ToPublishContext(grant);
  CHECK(FromPublishContext(grant.volume, context)->limits == grant.limits);
  for (const char* key : {"maxIops", "maxBandwidth", "limitsVersion"}) {
    PublishContext wrong = context;
    wrong[key] = "many";
    CHECK(absl::IsInvalidArgument(FromPublishContext(grant.volume, wrong).status()));
  }
  context.erase("maxIops");
  CHECK(absl::IsInvalidArgument(FromPublishContext(grant.volume, context).status()));
}

TEST_CASE("a grant of several portals comes back with them; as many as a value has room for") {
  Grant grant = SampleGrant();
  grant.connection.other_portals = {"10.1.0.5:3260", "[fd00::5]:3260"};
  grant.connection.peer_portals = {"[fd00::5]:3260"};
  const PublishContext context = ToPublishContext(grant);
  CHECK(FromPublishContext(grant.volume, context)->connection == grant.connection);
  for (const char* wrong : {"10.1.0.5", "10.1.0.5:3260,", ",", "10.1.0.5:3260,:0"}) {
    for (const char* key : {"otherPortals", "peerPortals"}) {
      PublishContext changed = context;
      changed[key] = wrong;
      CHECK(absl::IsInvalidArgument(FromPublishContext(grant.volume, changed).status()));
    }
  }
  grant.connection.other_portals.assign(40, "10.1.0.5:3260");
  CHECK(FromPublishContext(grant.volume, ToPublishContext(grant))->connection.other_portals.size() == 18);
}

TEST_CASE("another volume's publish context is refused") {
  const auto grant = FromPublishContext(VolumeId("v2"), ToPublishContext(SampleGrant()));
  CHECK(absl::IsInvalidArgument(grant.status()));
}

TEST_CASE("a publish context without one of its keys is refused, and the key is named") {
  const PublishContext whole = ToPublishContext(SampleGrant());
  for (const auto& [key, value] : whole) {
    for (const std::string& bad : {std::string(), std::string(300, 'x'), std::string("a\nb")}) {
      PublishContext context = whole;
      context[key] = bad;
      const auto grant = FromPublishContext(VolumeId("v1"), context);
      INFO(key);
      CHECK(grant.status().code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(grant.status().message()).find("\"" + key + "\"") != std::string::npos);
    }
  }
}

TEST_CASE("a publish context with a wrong value is refused without showing it") {
  const std::pair<const char*, const char*> wrong[] = {{"portal", "10.0.0.1"},
                                                       {"portal", ":3260"},
                                                       {"portal", "10.0.0.1:0"},
                                                       {"portal", "10.0.0.1:70000"},
                                                       {"target", "target-1"},
                                                       {"initiator", "eui.02004"},
                                                       {"lun", "-1"},
                                                       {"lun", "99999"},
                                                       {"generation", "0"},
                                                       {"generation", "seven"},
                                                       {"sizeBytes", "0"},
                                                       {"access", "everything"},
                                                       {"sizeBytes", "1000000000000000000000"},
                                                       {"durability", "never"}};
  for (const auto& [key, value] : wrong) {
    PublishContext context = ToPublishContext(SampleGrant());
    context[key] = value;
    INFO(key << "=" << value);
    const auto grant = FromPublishContext(VolumeId("v1"), context);
    CHECK(grant.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("keys an orchestrator added to the publish context are ignored") {
  PublishContext context = ToPublishContext(SampleGrant());
  context["devicePath"] = "csi-0123";
  CHECK(FromPublishContext(VolumeId("v1"), context).ok());
}

}  // namespace
}  // namespace lunkeeper
