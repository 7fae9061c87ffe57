// CSI 0.3 and 1.x, and kubelet's registration, in one program: nothing of one is taken for the other.
// plugin/csi_contract_test.cc has both on one server.

#include <google/protobuf/descriptor.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>

#include "csi/v0/csi.pb.h"
#include "csi/v1/csi.pb.h"
#include "registration/registration.pb.h"

namespace lunkeeper {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

bool IsAlike(const FieldDescriptor& a, const FieldDescriptor& b) {
  return a.type() == b.type() && a.label() == b.label() && a.is_map() == b.is_map();
}

// What 1.x calls otherwise and means the same.
bool IsSameName(const std::string& old_name, const std::string& new_name) {
  static const std::set<std::pair<std::string, std::string>> renamed = {
      {"id", "volume_id"},
      {"id", "snapshot_id"},
      {"attributes", "volume_context"},
      {"volume_attributes", "volume_context"},
      {"publish_info", "publish_context"}};
  const bool secrets = new_name == "secrets" && old_name.find("_secrets") != std::string::npos;
  return old_name == new_name || secrets || renamed.count({old_name, new_name}) != 0;
}

// The fields that do not mean the same by their number in two messages, and in those within.
void FindDifferences(const Descriptor& old_message, const Descriptor& new_message,
                     std::set<std::string>* differences) {
  for (int i = 0; i < old_message.field_count(); ++i) {
    const FieldDescriptor& field = *old_message.field(i);
    const FieldDescriptor* same = new_message.FindFieldByNumber(field.number());
    const std::string name = field.full_name().substr(std::string("csi.v0.").size());
    if (same == nullptr || !IsAlike(field, *same) || !IsSameName(field.name(), same->name())) {
      differences->insert(name);
    } else if (field.message_type() != nullptr && !field.is_map()) {
      FindDifferences(*field.message_type(), *same->message_type(), differences);
    }
  }
}

// v0_translation.h rests on this: it writes a message as one and reads it as the other.
TEST_CASE("a field has one number in 0.3 and in 1.13, but for those that are translated by hand") {
  std::set<std::string> differences;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const char* service : {"Identity", "Controller", "Node"}) {
    const auto* old_service = pool->FindServiceByName(std::string("csi.v0.") + service);
    const auto* new_service = pool->FindServiceByName(std::string("csi.v1.") + service);
    for (int i = 0; i < old_service->method_count(); ++i) {
      const auto* old_call = old_service->method(i);
      const auto* new_call = new_service->FindMethodByName(old_call->name());
      if (old_call->name() == "NodeGetId") continue;
      REQUIRE(new_call != nullptr);
      FindDifferences(*old_call->input_type(), *new_call->input_type(), &differences);
      FindDifferences(*old_call->output_type(), *new_call->output_type(), &differences);
    }
  }
  CHECK(differences == std::set<std::string>{
                           "ControllerGetCapabilitiesResponse.capabilities",
                           "GetPluginCapabilitiesResponse.capabilities",
                           "Snapshot.created_at",
                           "Snapshot.status",
                           "ValidateVolumeCapabilitiesRequest.accessible_topology",
                           "ValidateVolumeCapabilitiesRequest.volume_attributes",
                           "ValidateVolumeCapabilitiesRequest.volume_capabilities",
                           "ValidateVolumeCapabilitiesResponse.supported",
                       });
}

TEST_CASE("a request of 0.3 survives the wire") {
  csi::v0::CreateVolumeRequest sent;
  sent.set_name("pvc-1");
  (*sent.mutable_controller_create_secrets())["user"] = "u";
  sent.add_volume_capabilities()->mutable_mount()->set_fs_type("xfs");
  csi::v0::CreateVolumeRequest received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
  CHECK(received.volume_capabilities(0).mount().fs_type() == "xfs");
}

TEST_CASE("a request of 1.13 survives the wire") {
  csi::v1::CreateVolumeRequest sent;
  sent.set_name("pvc-1");
  sent.mutable_capacity_range()->set_required_bytes(int64_t{1} << 40);
  sent.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id("s1");
  csi::v1::CreateVolumeRequest received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
  CHECK(received.volume_content_source().snapshot().snapshot_id() == "s1");
}

TEST_CASE("a plugin's registration survives the wire") {
  pluginregistration::PluginInfo sent;
  sent.set_type("CSIPlugin");
  sent.add_supported_versions("1.0.0");
  pluginregistration::PluginInfo received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
}

TEST_CASE("secrets can be told from other fields at run time") {
  const auto* request = csi::v1::NodeStageVolumeRequest::descriptor();
  CHECK(request->FindFieldByName("secrets")->options().GetExtension(csi::v1::csi_secret));
  CHECK_FALSE(request->FindFieldByName("volume_context")->options().GetExtension(csi::v1::csi_secret));
}

}  // namespace
}  // namespace lunkeeper
