#include "csi-spec/v0_translation.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lunkeeper::csi_v0 {
namespace {

namespace v0 = csi::v0;
namespace v1 = csi::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// array.lunkeeper.io/a as io.lunkeeper.array/a, and the other way round.
std::string ReversePrefix(const std::string& key) {
  const size_t slash = key.rfind('/');
  if (slash == std::string::npos) return key;
  std::vector<std::string> labels = absl::StrSplit(key.substr(0, slash), '.');
  std::reverse(labels.begin(), labels.end());
  return absl::StrCat(absl::StrJoin(labels, "."), key.substr(slash));
}

void ReversePrefixes(v0::Topology* topology) {
  google::protobuf::Map<std::string, std::string> segments;
  for (const auto& [key, value] : topology->segments()) segments[ReversePrefix(key)] = value;
  topology->mutable_segments()->swap(segments);
}

// No field of a request or a response of 0.3 is a list of enum values; maps have strings alone.
void NormalizeField(Message* message, const FieldDescriptor* field) {
  const auto* reflection = message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const int value = reflection->GetEnumValue(*message, field);
    if (field->enum_type()->FindValueByNumber(value) == nullptr) reflection->ClearField(message, field);
  } else if (field->is_repeated() && field->message_type() != nullptr && !field->is_map()) {
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i)
      NormalizeMessage(reflection->MutableRepeatedMessage(message, field, i));
  } else if (!field->is_repeated() && field->message_type() != nullptr) {
    NormalizeMessage(reflection->MutableMessage(message, field));
  }
}

void TranslateSnapshot(const v1::Snapshot& from, v0::Snapshot* to) {
  // 0.3 counts nanoseconds since 1970, which end in 2262.
  constexpr int64_t kNanosInSecond = 1'000'000'000;
  constexpr int64_t kMostSeconds = std::numeric_limits<int64_t>::max() / kNanosInSecond - 3;
  const int64_t seconds = std::clamp(from.creation_time().seconds(), -kMostSeconds, kMostSeconds);
  to->set_created_at(seconds * kNanosInSecond + from.creation_time().nanos());
  // It is cut by now; a pool without reflinks may still be copying it, as others upload.
  to->mutable_status()->set_type(from.ready_to_use() ? v0::SnapshotStatus::READY
                                                     : v0::SnapshotStatus::UPLOADING);
}

}  // namespace

void NormalizeMessage(Message* v0) {
  v0->DiscardUnknownFields();
  if (auto* topology = dynamic_cast<v0::Topology*>(v0)) return ReversePrefixes(topology);
  std::vector<const FieldDescriptor*> fields;
  v0->GetReflection()->ListFields(*v0, &fields);
  for (const FieldDescriptor* field : fields) NormalizeField(v0, field);
}

// A field whose number has another type in `to` is an unknown one there, and goes with the other unknown
// ones.
void RecodeMessage(const Message& from, Message* to) {
  // Neither has required fields, so what was written can always be read.
  to->ParseFromString(from.SerializeAsString());
  to->DiscardUnknownFields();
}

void TranslateMessage(const v0::ValidateVolumeCapabilitiesRequest& from,
                      v1::ValidateVolumeCapabilitiesRequest* to) {
  to->set_volume_id(from.volume_id());
  *to->mutable_volume_context() = from.volume_attributes();
  for (const v0::VolumeCapability& capability : from.volume_capabilities())
    RecodeMessage(capability, to->add_volume_capabilities());
}

void TranslateMessage(const v1::ValidateVolumeCapabilitiesResponse& from,
                      v0::ValidateVolumeCapabilitiesResponse* to) {
  to->set_supported(from.has_confirmed());
  to->set_message(from.message());
}

void TranslateMessage(const v1::GetPluginCapabilitiesResponse& from, v0::GetPluginCapabilitiesResponse* to) {
  for (const v1::PluginCapability& capability : from.capabilities()) {
    const int type = capability.service().type();
    if (capability.has_service() && v0::PluginCapability::Service::Type_IsValid(type))
      RecodeMessage(capability, to->add_capabilities());
  }
}

void TranslateMessage(const v1::ControllerGetCapabilitiesResponse& from,
                      v0::ControllerGetCapabilitiesResponse* to) {
  for (const v1::ControllerServiceCapability& capability : from.capabilities()) {
    if (v0::ControllerServiceCapability::RPC::Type_IsValid(capability.rpc().type()))
      RecodeMessage(capability, to->add_capabilities());
  }
}

void TranslateMessage(const v1::NodeGetCapabilitiesResponse& from, v0::NodeGetCapabilitiesResponse* to) {
  for (const v1::NodeServiceCapability& capability : from.capabilities()) {
    if (v0::NodeServiceCapability::RPC::Type_IsValid(capability.rpc().type()))
      RecodeMessage(capability, to->add_capabilities());
  }
}

void TranslateMessage(const v1::ListVolumesResponse& from, v0::ListVolumesResponse* to) {
  RecodeMessage(from, to);
  for (v0::ListVolumesResponse::Entry& entry : *to->mutable_entries()) {
    // A clone's source is a volume, which 0.3 has no word for: then there is none.
    if (!entry.volume().content_source().has_snapshot()) entry.mutable_volume()->clear_content_source();
  }
}

void TranslateMessage(const v1::CreateSnapshotResponse& from, v0::CreateSnapshotResponse* to) {
  RecodeMessage(from, to);
  TranslateSnapshot(from.snapshot(), to->mutable_snapshot());
}

void TranslateMessage(const v1::ListSnapshotsResponse& from, v0::ListSnapshotsResponse* to) {
  RecodeMessage(from, to);
  for (int i = 0; i < from.entries_size(); ++i)
    TranslateSnapshot(from.entries(i).snapshot(), to->mutable_entries(i)->mutable_snapshot());
}

void TranslateMessage(const v0::NodePublishVolumeRequest& from, v1::NodePublishVolumeRequest* to) {
  using Old = v0::VolumeCapability::AccessMode;
  using New = v1::VolumeCapability::AccessMode;
  RecodeMessage(from, to);
  const Old::Mode mode = from.volume_capability().access_mode().mode();
  if (mode != Old::SINGLE_NODE_WRITER && mode != Old::SINGLE_NODE_READER_ONLY) return;
  to->mutable_volume_capability()->mutable_access_mode()->set_mode(New::SINGLE_NODE_SINGLE_WRITER);
  // There is no mode for a single reader; one that may write but is published read-only is the same thing.
  if (mode == Old::SINGLE_NODE_READER_ONLY) to->set_readonly(true);
}

}  // namespace lunkeeper::csi_v0
