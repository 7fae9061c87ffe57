#include "devices/array/remote/agent_caller.h"

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper {
namespace {

// How often a call checks whether its caller has gone.
constexpr absl::Duration kRecheckInterval = absl::Seconds(1);
// How long a call waits for a connection to an agent that the last call could not reach.
constexpr absl::Duration kReconnect = absl::Milliseconds(200);

}  // namespace

void AgentCaller::PrepareCall(grpc::ClientContext* context, absl::Duration timeout) const {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  context->AddMetadata(wire::kArrayKey, options_.name);
}

void AgentCaller::AwaitEnd(grpc::ClientContext* context, grpc::CompletionQueue* queue,
                           const std::function<bool()>& abandoned) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + kRecheckInterval)) ==
         grpc::CompletionQueue::TIMEOUT) {
    if (abandoned && abandoned()) context->TryCancel();
  }
}

absl::Status AgentCaller::ReadOutcome(const grpc::ClientContext& context, const grpc::Status& status,
                                      absl::Duration timeout, bool is_abandoned) {
  // Also an error may be the agent's own answer, and then the agent is well.
  const bool answered = status.ok() || context.GetServerTrailingMetadata().count(wire::kArrayKey) != 0;
  NoteOutcome(answered ? grpc::Status::OK : status);
  if (answered) return FromGrpcStatus(status);
  if (is_abandoned) return absl::CancelledError("nobody waits for it now");
  return TransportError(status, timeout);
}

// Fails fast while the agent is away. An attempt to connect to a dead host takes seconds, and gRPC makes
// calls wait for the first one after a connection broke. The caller may be a node that can ask another
// controller, whose path to the agent is better.
absl::Status AgentCaller::WaitForConnection(absl::Duration timeout) {
  grpc::Status lost;
  {
    absl::MutexLock lock(&mutex_);
    lost = lost_;
  }
  if (lost.ok() || channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE ||
      channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kReconnect)))
    return absl::OkStatus();
  return TransportError(lost, timeout);
}

// Only UNAVAILABLE means that the connection failed. A timeout is no news: the agent may just be slow.
void AgentCaller::NoteOutcome(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE) lost_ = status;
}

// An error without the agent's metadata: it was refused, lost or cut short on the way.
absl::Status AgentCaller::TransportError(const grpc::Status& status, absl::Duration timeout) const {
  const std::string which = absl::StrCat("array ", options_.name, " at ", options_.address, ": ");
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat(which, "no answer within ",
                                                      absl::FormatDuration(timeout),
                                                      ": it may be done all the same; repeat it"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(
          absl::StrCat(which, "its agent is of an older version and does not know this call: upgrade it: ",
                       status.error_message()));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return absl::UnavailableError(
          absl::StrCat(which, "too busy, or the answer is too large: try again: ", status.error_message()));
    default:
      return absl::UnavailableError(absl::StrCat(
          which, "cannot be reached: see that `lunkeeper array` runs there and that each side's ",
          "certificate is signed by the other's CA: ", status.error_message()));
  }
}

}  // namespace lunkeeper
