// Each call of 0.3 is one line: ForwardCall translates the request, makes the call of 1.x on the same
// thread, and translates the answer. Only the calls whose error tables or fields differ in 0.3 do more.
#include "csi-spec/v0_services.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "csi-spec/v0_translation.h"

namespace lunkeeper {
namespace {

namespace v0 = csi::v0;
namespace v1 = csi::v1;
using grpc::ServerContext;
using grpc::Status;

// Errors name the field that is wrong, and these have another name in 0.3.
Status InWordsOfV0(const Status& status) {
  return {status.error_code(),
          absl::StrReplaceAll(status.error_message(), {{"publish_context", "publish_info"},
                                                       {"volume_context", "volume_attributes"}})};
}

// `call` takes the arguments of a call of 1.x.
template <class Request, class Response, class OldRequest, class OldResponse, class Call>
Status ForwardTo(const Call& call, ServerContext* context, const OldRequest* request, OldResponse* response) {
  // A field that 0.3 does not know could be one of 1.x with the same number: it must not get through.
  OldRequest known = *request;
  csi_v0::NormalizeMessage(&known);
  Request asked;
  csi_v0::TranslateMessage(known, &asked);
  Response answered;
  if (const Status status = call(context, &asked, &answered); !status.ok()) return InWordsOfV0(status);
  csi_v0::TranslateMessage(answered, response);
  csi_v0::NormalizeMessage(response);
  return Status::OK;
}

template <class Service, class Request, class Response, class OldRequest, class OldResponse>
Status ForwardCall(Service& service, Status (Service::*call)(ServerContext*, const Request*, Response*),
                   ServerContext* context, const OldRequest* request, OldResponse* response) {
  const auto bound = [&](auto... arguments) { return (service.*call)(arguments...); };
  return ForwardTo<Request, Response>(bound, context, request, response);
}

// A call of 0.3 that differs from that of 1.x in its messages alone.
#define FORWARD_CALL(name)                                                                            \
  Status name(ServerContext* context, const v0::name##Request* request, v0::name##Response* response) \
      override {                                                                                      \
    return ForwardCall(service_, &Service::name, context, request, response);                         \
  }

class IdentityV0 final : public v0::Identity::Service {
 public:
  using Service = v1::Identity::Service;
  IdentityV0(Service& service, std::string name) : service_(service), name_(std::move(name)) {}

  FORWARD_CALL(GetPluginCapabilities)
  FORWARD_CALL(Probe)

  Status GetPluginInfo(ServerContext* context, const v0::GetPluginInfoRequest* request,
                       v0::GetPluginInfoResponse* response) override {
    const Status status = ForwardCall(service_, &Service::GetPluginInfo, context, request, response);
    response->set_name(name_);
    return status;
  }

 private:
  Service& service_;
  const std::string name_;
};

// A place may have more segments than are asked for.
bool LiesIn(const v0::Topology& place, const v0::Topology& wider) {
  return std::all_of(wider.segments().begin(), wider.segments().end(), [&](const auto& segment) {
    const auto same = place.segments().find(segment.first);
    return same != place.segments().end() && same->second == segment.second;
  });
}

class ControllerV0 final : public v0::Controller::Service {
 public:
  using Service = v1::Controller::Service;
  explicit ControllerV0(Service& service) : service_(service) {}

  FORWARD_CALL(CreateVolume)
  FORWARD_CALL(DeleteVolume)
  FORWARD_CALL(ControllerPublishVolume)
  FORWARD_CALL(ListVolumes)
  FORWARD_CALL(GetCapacity)
  FORWARD_CALL(ControllerGetCapabilities)
  FORWARD_CALL(CreateSnapshot)
  FORWARD_CALL(DeleteSnapshot)
  FORWARD_CALL(ListSnapshots)

  // NOT_FOUND for a volume that does not exist: in 1.x such a volume counts as unpublished.
  Status ControllerUnpublishVolume(ServerContext* context,
                                   const v0::ControllerUnpublishVolumeRequest* request,
                                   v0::ControllerUnpublishVolumeResponse* response) override {
    v0::Volume volume;
    if (const Status found = FindVolume(context, request->volume_id(), &volume); !found.ok()) return found;
    return ForwardCall(service_, &Service::ControllerUnpublishVolume, context, request, response);
  }

  // 0.3 also asks whether the volume can be used where the caller believes.
  Status ValidateVolumeCapabilities(ServerContext* context,
                                    const v0::ValidateVolumeCapabilitiesRequest* request,
                                    v0::ValidateVolumeCapabilitiesResponse* response) override {
    const Status status =
        ForwardCall(service_, &Service::ValidateVolumeCapabilities, context, request, response);
    // Without places, or with a volume that cannot be used anyway, there is nothing more to ask.
    if (!status.ok() || !response->supported() || request->accessible_topology().empty()) return status;
    v0::Volume volume;
    if (const Status found = FindVolume(context, request->volume_id(), &volume); !found.ok()) return found;
    const auto reached = [&](const v0::Topology& place) {
      return std::any_of(volume.accessible_topology().begin(), volume.accessible_topology().end(),
                         [&](const v0::Topology& there) { return LiesIn(place, there); });
    };
    const auto& believed = request->accessible_topology();
    if (std::all_of(believed.begin(), believed.end(), reached)) return Status::OK;
    response->set_supported(false);
    response->set_message("accessible_topology: the volume cannot be reached from there");
    return Status::OK;
  }

 private:
  Status FindVolume(ServerContext* context, const std::string& id, v0::Volume* volume) {
    v1::ControllerGetVolumeRequest request;
    request.set_volume_id(id);
    v1::ControllerGetVolumeResponse response;
    const Status status = service_.ControllerGetVolume(context, &request, &response);
    csi_v0::TranslateMessage(response.volume(), volume);
    csi_v0::NormalizeMessage(volume);
    return status;
  }

  Service& service_;
};

class NodeV0 final : public v0::Node::Service {
 public:
  using Service = v1::Node::Service;
  NodeV0(Service& service, UnpublishCall unpublish) : service_(service), unpublish_(std::move(unpublish)) {}

  FORWARD_CALL(NodeStageVolume)
  FORWARD_CALL(NodeUnstageVolume)
  FORWARD_CALL(NodePublishVolume)
  FORWARD_CALL(NodeGetCapabilities)
  FORWARD_CALL(NodeGetInfo)

  // The target path stays.
  Status NodeUnpublishVolume(ServerContext* context, const v0::NodeUnpublishVolumeRequest* request,
                             v0::NodeUnpublishVolumeResponse* response) override {
    return ForwardTo<v1::NodeUnpublishVolumeRequest, v1::NodeUnpublishVolumeResponse>(unpublish_, context,
                                                                                      request, response);
  }

  // A part of NodeGetInfo, which 0.2 did not have yet.
  Status NodeGetId(ServerContext* context, const v0::NodeGetIdRequest*,
                   v0::NodeGetIdResponse* response) override {
    v1::NodeGetInfoRequest request;
    v1::NodeGetInfoResponse info;
    const Status status = service_.NodeGetInfo(context, &request, &info);
    response->set_node_id(info.node_id());
    return status;
  }

 private:
  Service& service_;
  const UnpublishCall unpublish_;
};

#undef FORWARD_CALL

}  // namespace

std::unique_ptr<v0::Identity::Service> MakeIdentityV0(v1::Identity::Service& identity, std::string name) {
  return std::make_unique<IdentityV0>(identity, std::move(name));
}

std::unique_ptr<v0::Controller::Service> MakeControllerV0(v1::Controller::Service& controller) {
  return std::make_unique<ControllerV0>(controller);
}

std::unique_ptr<v0::Node::Service> MakeNodeV0(v1::Node::Service& node, UnpublishCall unpublish) {
  return std::make_unique<NodeV0>(node, std::move(unpublish));
}

}  // namespace lunkeeper
