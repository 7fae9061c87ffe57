#include "plugin/handover_call.h"

#include <cstdlib>

#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kCallerHangsUp = absl::Seconds(2);

admin::v1::HandOverProgress ToMessage(const HandoverProgress& progress) {
  using Step = HandoverProgress::Step;
  admin::v1::HandOverProgress message;
  const auto step = [&] {
    switch (progress.step) {
      case Step::kBegun:
        return admin::v1::HandOverProgress::BEGUN;
      case Step::kStopping:
        return admin::v1::HandOverProgress::STOPPING;
      case Step::kStopped:
        return admin::v1::HandOverProgress::STOPPED;
      case Step::kReleased:
        return admin::v1::HandOverProgress::RELEASED;
      case Step::kTaken:
        return admin::v1::HandOverProgress::TAKEN;
    }
    return admin::v1::HandOverProgress::UNKNOWN;
  };
  message.set_step(step());
  message.set_host(progress.host);
  message.set_trouble(std::string(progress.trouble.message()));
  message.mutable_peer_portals()->Assign(progress.peer_portals.begin(), progress.peer_portals.end());
  return message;
}

// A destructor would wait for what Ceph does not answer any more.
[[noreturn]] void EndProcess(const grpc::ServerContext& context) {
  const SteadyDeadline deadline(kCallerHangsUp);
  while (!context.IsCancelled() && !deadline.IsOver()) absl::SleepFor(absl::Milliseconds(10));
  LogInfo("array", "this agent ends, for another gateway is to have the array; started again, it stands by");
  std::_Exit(0);
}

}  // namespace

grpc::Status AnswerHandOver(const std::function<absl::Status(const HandoverWatch&)>& hand_over,
                            grpc::ServerContext& context,
                            grpc::ServerWriter<admin::v1::HandOverProgress>& writer) {
  const absl::Status handed_over = hand_over([&](const HandoverProgress& progress) {
    return !context.IsCancelled() && writer.Write(ToMessage(progress));
  });
  if (handed_over.ok()) EndProcess(context);
  return ToGrpcStatus(handed_over);
}

}  // namespace lunkeeper
