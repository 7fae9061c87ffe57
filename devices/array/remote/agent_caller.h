#pragma once
// Makes calls to an array agent, by the rules of its connection. Each is made once: to repeat one would do no
// harm, but only the caller knows whether it still wants the change, and for how long.
//
// Whose error is it? The agent adds trailing metadata (kArrayKey) to every answer of its own, so that an
// error with it comes from the array and is passed on unchanged. An error without it was made by gRPC on one
// of the two sides, and becomes one of ours, in words an operator can act on (remote_array.h). Texts and
// codes alone could not tell them apart: both may be UNAVAILABLE or DEADLINE_EXCEEDED.
//
// Thread-safe. A call polls a completion queue of its own once a second, on the caller's thread, so that a
// caller that went away ends it; there is no thread here but gRPC's.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/remote_array.h"

namespace lunkeeper {

class AgentCaller {
 public:
  using Stub = array::v1::ArrayService::Stub;
  template <class Request, class Response>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*)(grpc::ClientContext*,
                                                                                      const Request&,
                                                                                      grpc::CompletionQueue*);

  AgentCaller(const RemoteArrayOptions& options, const std::shared_ptr<grpc::Channel>& channel)
      : options_(options), channel_(channel), stub_(array::v1::ArrayService::NewStub(channel)) {}

  // CANCELLED: `abandoned`, asked once a second, has said that nobody waits.
  template <class Request, class Response>
  absl::Status CallAgent(Method<Request, Response> method, const Request& request, Response* response,
                         absl::Duration timeout, const std::function<bool()>& abandoned = nullptr) {
    RETURN_IF_ERROR(WaitForConnection(timeout));
    grpc::ClientContext context;
    PrepareCall(&context, timeout);
    // gRPC wants a queue to be empty when it is destroyed. The loop ends with the call's only event, also
    // after TryCancel.
    grpc::CompletionQueue queue;
    grpc::Status status;
    const auto reader = (stub_.get()->*method)(&context, request, &queue);
    reader->Finish(response, &status, &queue);
    AwaitEnd(&context, &queue, abandoned);
    const bool is_abandoned = abandoned && abandoned();
    return ReadOutcome(context, status, timeout, is_abandoned);
  }

 private:
  absl::Status WaitForConnection(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  void PrepareCall(grpc::ClientContext* context, absl::Duration timeout) const;
  static void AwaitEnd(grpc::ClientContext* context, grpc::CompletionQueue* queue,
                       const std::function<bool()>& abandoned);
  absl::Status ReadOutcome(const grpc::ClientContext& context, const grpc::Status& status,
                           absl::Duration timeout, bool is_abandoned);
  void NoteOutcome(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TransportError(const grpc::Status& status, absl::Duration timeout) const;

  const RemoteArrayOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
  absl::Mutex mutex_;
  grpc::Status lost_ ABSL_GUARDED_BY(mutex_);  // why the agent was not reached at last; OK: it was
};

}  // namespace lunkeeper
