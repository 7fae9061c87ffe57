// Any bytes at all as what a node sends to a controller, and as its answer: never a crash, and what was
// accepted is the same when it is sent on.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fencing/protocol/messages.h"

namespace {

using namespace lunkeeper;

void CheckHeartbeat(const std::string& bytes) {
  coordinator::v1::Heartbeat message;
  if (!message.ParseFromString(bytes)) return;
  const auto heartbeat = ReadHeartbeat(message);
  (void)ReadDetails(message);
  if (!heartbeat.ok()) return;
  const auto again = ReadHeartbeat(WriteHeartbeat(*heartbeat));
  const bool same = again.ok() && again->node == heartbeat->node && again->boot == heartbeat->boot &&
                    again->sequence == heartbeat->sequence && again->kubelet_ok == heartbeat->kubelet_ok &&
                    again->failing == heartbeat->failing && again->failed == heartbeat->failed &&
                    again->present == heartbeat->present && again->known == heartbeat->known &&
                    again->closed == heartbeat->closed && again->idle == heartbeat->idle;
  if (!same) std::abort();
}

void CheckAnswer(const std::string& bytes) {
  coordinator::v1::HeartbeatAnswer answer;
  if (!answer.ParseFromString(bytes)) return;
  const FencesByArray fences = ReadFences(NodeId("n.0123456789abcdef"), answer);
  const auto written =
      WriteAnswer(fences, ReadLimits(answer), ReadRemovedArrays(answer), ReadReplicas(answer));
  if (ReadRemovedArrays(written) != ReadRemovedArrays(answer)) std::abort();
  if (ReadFences(NodeId("n.0123456789abcdef"), written).size() != fences.size()) std::abort();
}

void CheckAcquire(const std::string& bytes) {
  coordinator::v1::AcquireRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto node = ReadNode(request.node(), "n");
  if (node.ok() && fencing::NameOf(*node).value() != "n") std::abort();
  (void)ReadVolume(request.volume_id());
  (void)ReadMode(request.mode());
  const auto access = ReadAccess(request.access());
  if (access.ok() && WriteAccess(*access) != request.access()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The library would tell of each text that is not UTF-8, and refuses it.
  static const auto silent = google::protobuf::SetLogHandler(nullptr);
  (void)silent;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      CheckHeartbeat(bytes);
      break;
    case 1:
      CheckAnswer(bytes);
      break;
    default:
      CheckAcquire(bytes);
  }
  return 0;
}
