// Any calls at all of the Controller and GroupController services, one after the other over an array in
// memory: never a crash, every refusal short and no INTERNAL error, and a creation that succeeded is answered
// alike when it is repeated.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/controller_service.h"
#include "controller/group_service.h"
#include "devices/array/testing/fake_array.h"

namespace {

using namespace lunkeeper;
using grpc::Status;
namespace v1 = csi::v1;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckStatus(const Status& status) {
  Require(status.error_code() != grpc::StatusCode::INTERNAL &&
          status.error_code() != grpc::StatusCode::UNKNOWN);
  Require(status.error_message().size() < 1 << 14);
}

class Calls {
 public:
  void MakeCall(size_t number, const std::string& bytes) { calls_[number % calls_.size()](bytes); }

 private:
  using CallWithBytes = std::function<void(const std::string&)>;

  template <class Service, class Request, class Response>
  static CallWithBytes Call(Service& service,
                            Status (Service::*call)(grpc::ServerContext*, const Request*, Response*)) {
    return [&service, call](const std::string& bytes) {
      Request request;
      if (!request.ParseFromString(bytes)) return;
      Response first, second;
      const Status status = (service.*call)(nullptr, &request, &first);
      CheckStatus(status);
      const Status again = (service.*call)(nullptr, &request, &second);
      CheckStatus(again);
      Require(!status.ok() || again.ok());
      if constexpr (requires { first.volume().volume_id(); })
        Require(!status.ok() || first.volume().volume_id() == second.volume().volume_id());
      if constexpr (requires { first.snapshot().snapshot_id(); })
        Require(!status.ok() || first.snapshot().snapshot_id() == second.snapshot().snapshot_id());
    };
  }

  FakeArray array_{{.name = "a1"}};
  // The array is a member, and belongs to nobody else.
  std::unique_ptr<Arrays> arrays_ =
      MakeOneArray("a1", std::shared_ptr<Array>(std::shared_ptr<void>(), &array_));
  std::unique_ptr<v1::Controller::Service> controller_ = MakeControllerService(*arrays_, {});
  std::unique_ptr<v1::GroupController::Service> groups_ = MakeGroupControllerService(*arrays_);
#define CALL(part, name) Call(*part, &std::remove_reference_t<decltype(*part)>::name)
  const std::vector<CallWithBytes> calls_ = {
      CALL(controller_, CreateVolume),
      CALL(controller_, DeleteVolume),
      CALL(controller_, ControllerPublishVolume),
      CALL(controller_, ControllerUnpublishVolume),
      CALL(controller_, ValidateVolumeCapabilities),
      CALL(controller_, ListVolumes),
      CALL(controller_, GetCapacity),
      CALL(controller_, CreateSnapshot),
      CALL(controller_, DeleteSnapshot),
      CALL(controller_, ListSnapshots),
      CALL(controller_, ControllerExpandVolume),
      CALL(controller_, ControllerGetVolume),
      CALL(controller_, ControllerModifyVolume),
      CALL(groups_, CreateVolumeGroupSnapshot),
      CALL(groups_, DeleteVolumeGroupSnapshot),
      CALL(groups_, GetVolumeGroupSnapshot),
  };
#undef CALL
};

}  // namespace

// Each call is a number, a length of two bytes, and the request.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The library would tell of each text that is not UTF-8, and refuses it.
  static const auto silent = google::protobuf::SetLogHandler(nullptr);
  (void)silent;
  Calls calls;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at + 3 <= bytes.size();) {
    const size_t length = static_cast<uint8_t>(bytes[at + 1]) << 8 | static_cast<uint8_t>(bytes[at + 2]);
    calls.MakeCall(static_cast<uint8_t>(bytes[at]), bytes.substr(at + 3, length));
    at += 3 + length;
  }
  return 0;
}
