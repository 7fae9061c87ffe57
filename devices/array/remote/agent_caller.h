#pragma once
// Calls to the agents of one array: which of them is asked, for how long, and whose the answer is.
//
// An array has one agent, or several, of which one serves it at a time. A call goes to the one that answered
// last. If that one cannot be reached, or answers that it does not serve the array, the call goes to the
// next, and so to each of them once. An agent answers for its array only as long as it serves it
// (array_service.h), so whichever answers is right, unless it is the agent of an old copy of the pool: of a
// host that was replaced, and came back. So with several agents all are asked which copy they have
// (pool_identity.h), before the first call and then every five seconds; and the answers of an older copy than
// the newest known, or of another pool than the first, are not believed. What is known is lost with the
// process: one that starts while only the old host runs believes it.
//
// Thread-safe. Each agent has a connection of its own, made with the first call to it: an agent that is down
// keeps no controller from starting, but may delay its first call by two seconds. Destroyed after the last
// call has returned.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "base/steady_mutex.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/remote_array.h"

namespace lunkeeper {

class AgentCaller {
 public:
  using Stub = array::v1::ArrayService::Stub;
  AgentCaller(const RemoteArrayOptions& options,
              const std::shared_ptr<grpc::ChannelCredentials>& credentials);
  ~AgentCaller();

  template <class Request, class Response>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*)(grpc::ClientContext*,
                                                                                      const Request&,
                                                                                      grpc::CompletionQueue*);

  // What the array answered; or, if none of its agents did, what remote_array.h says. CANCELLED: `abandoned`,
  // asked once a second, has said that nobody waits.
  template <class Request, class Response>
  absl::Status CallAgent(Method<Request, Response> method, const Request& request, Response* response,
                         absl::Duration timeout, const std::function<bool()>& abandoned = nullptr) {
    return CallEach(SendOf(method, request, response), timeout, abandoned);
  }

 private:
  class Agent;
  // The newest copy of the array's pool that has answered.
  class KnownPool;
  // Sends the call, whose only event in the queue comes when its status is set. What is returned lives until
  // then. Called once for each agent that is asked.
  using Send = absl::FunctionRef<std::shared_ptr<void>(Stub&, grpc::ClientContext*, grpc::CompletionQueue*,
                                                       grpc::Status*)>;
  template <class Request, class Response>
  static auto SendOf(Method<Request, Response> method, const Request& request, Response* response) {
    return [method, &request, response](Stub& stub, grpc::ClientContext* context,
                                        grpc::CompletionQueue* queue, grpc::Status* status) {
      auto reader = (stub.*method)(context, request, queue);
      reader->Finish(response, status, queue);
      return std::shared_ptr<void>(std::move(reader));
    };
  }
  absl::Status CallEach(Send send, absl::Duration timeout, const std::function<bool()>& abandoned)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks each agent which copy it has.
  void AskWhichCopies() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string array_;
  const absl::Duration copy_timeout_;
  const std::unique_ptr<KnownPool> pool_;
  std::vector<std::unique_ptr<Agent>> agents_;  // constant
  std::atomic<size_t> in_use_ = 0;              // the one that is asked first
  std::atomic<bool> closing_ = false;
  SteadyMutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // that was done once
  std::unique_ptr<Periodic> questions_;         // last: its thread uses the others; none with one agent
};

}  // namespace lunkeeper
