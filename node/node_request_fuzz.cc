// Any bytes at all as a request of the Node service: what is taken from it is checked, or it is refused with
// a code that the specification names for a wrong request.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "node/capability.h"
#include "node/node_request.h"

namespace {

using namespace lunkeeper;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckRefusal(const absl::Status& status) {
  Require(status.ok() || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
          absl::IsNotFound(status));
  Require(status.message().size() < 1 << 14);
}

template <class Request, class Parse>
void CheckParse(const std::string& bytes, Parse parse) {
  Request request;
  if (!request.ParseFromString(bytes)) return;
  CheckRefusal(parse(request).status());
}

void CheckCapability(const std::string& bytes) {
  csi::v1::NodeStageVolumeRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto capability = ParseCapability(request.volume_capability(),
                                          {request.volume_context().begin(), request.volume_context().end()});
  CheckRefusal(capability.status());
  Require(!capability.ok() || !capability->block || !capability->type.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The library would tell of each text that is not UTF-8, and refuses it.
  static const auto silent = google::protobuf::SetLogHandler(nullptr);
  (void)silent;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const absl::Time never = absl::InfiniteFuture();
  switch (data[0] % 6) {
    case 0:
      CheckParse<csi::v1::NodeStageVolumeRequest>(bytes,
                                                  [=](auto& each) { return ParseStageRequest(each, never); });
      break;
    case 1:
      CheckParse<csi::v1::NodePublishVolumeRequest>(
          bytes, [=](auto& each) { return ParsePublishRequest(each, never); });
      break;
    case 2:
      CheckParse<csi::v1::NodeExpandVolumeRequest>(
          bytes, [=](auto& each) { return ParseExpandRequest(each, never); });
      break;
    case 3:
      CheckParse<csi::v1::NodeGetVolumeHealthRequest>(bytes, ParseHealthRequest);
      break;
    case 4:
      CheckParse<csi::v1::NodeGetVolumeStatsRequest>(bytes, ParseUsagePath);
      break;
    default:
      CheckCapability(bytes);
  }
  return 0;
}
