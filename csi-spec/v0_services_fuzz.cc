// Any bytes at all as a request of CSI 0.3, and as the answer of 1.x to it: never a crash; what one version
// does not know never reaches the other; and each text that both have arrives as it was.
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csi-spec/v0_services.h"
#include "csi-spec/v0_translation.h"

namespace {

namespace v0 = csi::v0;
namespace v1 = csi::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using grpc::ServerContext;
using grpc::Status;

bool AreEqual(const Message& a, const Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckEnums(const Message& message) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !field->is_repeated()) {
      Require(field->enum_type()->FindValueByNumber(reflection->GetEnumValue(message, field)) != nullptr);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map()) {
      const int size = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
      for (int i = 0; i < size; ++i)
        CheckEnums(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                        : reflection->GetMessage(message, field));
    }
  }
}

// Nothing in it that its own version does not know.
void CheckKnown(const Message& message) {
  const std::unique_ptr<Message> known(message.New());
  known->CopyFrom(message);
  known->DiscardUnknownFields();
  Require(known->ByteSizeLong() == message.ByteSizeLong());
  CheckEnums(message);
}

// The texts of a request's own fields: by number, or by name where the numbers differ.
void CheckTexts(const Message& from, const Message& to, bool by_name) {
  for (int i = 0; i < from.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = from.GetDescriptor()->field(i);
    const FieldDescriptor* same = by_name ? to.GetDescriptor()->FindFieldByName(field->name())
                                          : to.GetDescriptor()->FindFieldByNumber(field->number());
    if (field->type() != FieldDescriptor::TYPE_STRING || field->is_repeated() || same == nullptr) continue;
    Require(to.GetReflection()->GetString(to, same) == from.GetReflection()->GetString(from, field));
  }
}

// What was asked of 1.x, and what it answers: each service below is the same, call by call.
struct TakenCall {
  std::string answer;
  std::unique_ptr<Message> asked;

  template <class Request, class Response>
  Status TakeCall(const Request* request, Response* response) {
    CheckKnown(*request);
    asked.reset(request->New());
    asked->CopyFrom(*request);
    if (!response->ParseFromString(answer)) response->Clear();
    return Status::OK;
  }
};

#define TAKE_CALL(name)                                                                                  \
  Status name(ServerContext*, const v1::name##Request* request, v1::name##Response* response) override { \
    return exchange.TakeCall(request, response);                                                         \
  }

struct IdentityV1 final : v1::Identity::Service {
  explicit IdentityV1(TakenCall& taken) : exchange(taken) {}
  TAKE_CALL(GetPluginInfo)
  TAKE_CALL(GetPluginCapabilities)
  TAKE_CALL(Probe)
  TakenCall& exchange;
};

struct ControllerV1 final : v1::Controller::Service {
  explicit ControllerV1(TakenCall& taken) : exchange(taken) {}
  TAKE_CALL(CreateVolume)
  TAKE_CALL(DeleteVolume)
  TAKE_CALL(ControllerPublishVolume)
  TAKE_CALL(ControllerUnpublishVolume)
  TAKE_CALL(ValidateVolumeCapabilities)
  TAKE_CALL(ListVolumes)
  TAKE_CALL(GetCapacity)
  TAKE_CALL(ControllerGetCapabilities)
  TAKE_CALL(CreateSnapshot)
  TAKE_CALL(DeleteSnapshot)
  TAKE_CALL(ListSnapshots)
  TAKE_CALL(ControllerGetVolume)
  TakenCall& exchange;
};

struct NodeV1 final : v1::Node::Service {
  explicit NodeV1(TakenCall& taken) : exchange(taken) {}
  TAKE_CALL(NodeStageVolume)
  TAKE_CALL(NodeUnstageVolume)
  TAKE_CALL(NodePublishVolume)
  TAKE_CALL(NodeUnpublishVolume)
  TAKE_CALL(NodeGetCapabilities)
  TAKE_CALL(NodeGetInfo)
  TakenCall& exchange;
};

#undef TAKE_CALL

class TranslatedCalls {
 public:
  // The library would tell of each text that is not UTF-8, and refuses it.
  TranslatedCalls() { google::protobuf::SetLogHandler(nullptr); }

  void MakeCall(size_t number, const std::string& request, const std::string& answer) {
    exchange_.answer = answer;
    calls_[number % calls_.size()](request);
  }

 private:
  using CallWithBytes = std::function<void(const std::string&)>;
  template <class Service, class Request, class Response>
  static CallWithBytes Call(TakenCall& exchange, Service& service,
                            Status (Service::*call)(ServerContext*, const Request*, Response*)) {
    return [&exchange, &service, call](const std::string& bytes) {
      Request request;
      if (!request.ParseFromString(bytes)) return;
      CheckNormalizes(request);
      exchange.asked = nullptr;
      Response response;
      const Status status = (service.*call)(nullptr, &request, &response);
      CheckKnown(response);
      // Some ask 1.x something else first, or instead.
      const bool by_name = request.GetDescriptor()->name() == "ValidateVolumeCapabilitiesRequest";
      if (status.ok() && exchange.asked->GetDescriptor()->name() == request.GetDescriptor()->name())
        CheckTexts(request, *exchange.asked, by_name);
    };
  }

  // It is its own reverse, but for what 0.3 does not know, which it removes at once.
  template <class Request>
  static void CheckNormalizes(const Request& request) {
    Request once = request;
    lunkeeper::csi_v0::NormalizeMessage(&once);
    CheckKnown(once);
    Request thrice = once;
    lunkeeper::csi_v0::NormalizeMessage(&thrice);
    lunkeeper::csi_v0::NormalizeMessage(&thrice);
    Require(AreEqual(once, thrice));
  }

  TakenCall exchange_;
  IdentityV1 identity_v1_{exchange_};
  ControllerV1 controller_v1_{exchange_};
  NodeV1 node_v1_{exchange_};
  std::unique_ptr<v0::Identity::Service> identity_ = lunkeeper::MakeIdentityV0(identity_v1_, "io.x");
  std::unique_ptr<v0::Controller::Service> controller_ = lunkeeper::MakeControllerV0(controller_v1_);
  std::unique_ptr<v0::Node::Service> node_ = lunkeeper::MakeNodeV0(
      node_v1_, [this](auto... arguments) { return node_v1_.NodeUnpublishVolume(arguments...); });
#define CALL(part, name) Call(exchange_, *part, &std::remove_reference_t<decltype(*part)>::name)
  const std::vector<CallWithBytes> calls_ = {
      CALL(identity_, GetPluginInfo),
      CALL(identity_, GetPluginCapabilities),
      CALL(identity_, Probe),
      CALL(controller_, CreateVolume),
      CALL(controller_, DeleteVolume),
      CALL(controller_, ControllerPublishVolume),
      CALL(controller_, ControllerUnpublishVolume),
      CALL(controller_, ValidateVolumeCapabilities),
      CALL(controller_, ListVolumes),
      CALL(controller_, GetCapacity),
      CALL(controller_, ControllerGetCapabilities),
      CALL(controller_, CreateSnapshot),
      CALL(controller_, DeleteSnapshot),
      CALL(controller_, ListSnapshots),
      CALL(node_, NodeStageVolume),
      CALL(node_, NodeUnstageVolume),
      CALL(node_, NodePublishVolume),
      CALL(node_, NodeUnpublishVolume),
      CALL(node_, NodeGetId),
      CALL(node_, NodeGetCapabilities),
      CALL(node_, NodeGetInfo),
  };
#undef CALL
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static TranslatedCalls services;
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t request = std::min<size_t>(data[1], bytes.size());
  services.MakeCall(data[0], bytes.substr(0, request), bytes.substr(request));
  return 0;
}
