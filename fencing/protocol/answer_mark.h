#pragma once
// Tells a controller's answer from an error that gRPC made up on the way. Both come as a status, and some
// codes are ambiguous: DEADLINE_EXCEEDED is the coordinator's answer to an Acquire whose wait was in vain,
// and gRPC's report of a replica that stayed silent. So the coordinator marks each of its answers in the
// call's trailing metadata, as devices/array/remote/wire.h does for arrays. Pure functions on the contexts of
// one call.

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

namespace lunkeeper {

inline constexpr char kAnswerMark[] = "lunkeeper-coordinator-answer";

// Of a handler, before it returns.
inline void AddAnswerMark(grpc::ServerContext* context) { context->AddTrailingMetadata(kAnswerMark, "1"); }

// Of the caller, once the call has ended.
inline bool HasAnswerMark(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(kAnswerMark) > 0;
}

}  // namespace lunkeeper
