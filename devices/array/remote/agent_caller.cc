// Whose answer is it? An agent adds trailing metadata (kArrayKey) to every answer that is its array's, so
// that an error with it comes from the array and is passed on unchanged. An error without it was made by gRPC
// on one of the two sides, or by an agent that does not serve the array now, and becomes one of ours, in
// words an operator can act on. Texts and codes alone could not tell them apart: both may be UNAVAILABLE or
// DEADLINE_EXCEEDED.
//
// A call polls a completion queue of its own once a second, on the caller's thread, so that a caller that
// went away ends it; there is no thread here but gRPC's.
#include "devices/array/remote/agent_caller.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/pool_identity.h"
#include "devices/array/remote/agent_channel.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper {
namespace {

// How often a call checks whether its caller has gone.
constexpr absl::Duration kRecheckInterval = absl::Seconds(1);
// How long a call waits for a connection to an agent that the last call could not reach.
constexpr absl::Duration kReconnect = absl::Milliseconds(200);
// How often each agent is asked which copy of its pool it has. So long may a controller that has just started
// still believe an old copy when the newest is there.
constexpr absl::Duration kAskCopies = absl::Seconds(5);

using Clock = std::chrono::steady_clock;

absl::Duration LeftUntil(Clock::time_point end) { return absl::FromChrono(end - Clock::now()); }

std::string TrailerOf(const grpc::ClientContext& context, const char* key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

class AgentCaller::KnownPool {
 public:
  // For the metadata of a call; empty: none is known.
  std::string ToText() const {
    const absl::MutexLock lock(&mutex_);
    return known_ ? lunkeeper::ToText(*known_) : "";
  }
  // As CheckCopy; what passes is known from now on. An agent that does not say which copy it has is older
  // than one that does, and cannot open the pool which that one has opened.
  absl::Status Learn(const std::optional<PoolIdentity>& found) {
    const absl::MutexLock lock(&mutex_);
    if (!known_ && !found) return absl::OkStatus();
    if (!found)
      return absl::UnavailableError(
          "its agent is of an older version, and so its pool is not the array's: correct the address, or, if "
          "you went back to that version, restart the controllers");
    if (known_) RETURN_IF_ERROR(CheckCopy(*found, *known_));
    known_ = found;
    return absl::OkStatus();
  }

 private:
  mutable absl::Mutex mutex_;
  std::optional<PoolIdentity> known_ ABSL_GUARDED_BY(mutex_);
};

class AgentCaller::Agent {
 public:
  Agent(std::string array, std::string address, KnownPool& pool,
        const std::shared_ptr<grpc::Channel>& channel)
      : array_(std::move(array)),
        address_(std::move(address)),
        pool_(pool),
        channel_(channel),
        stub_(array::v1::ArrayService::NewStub(channel)) {}

  const std::string& address() const { return address_; }

  // One call. It is never repeated here: that would do no harm, but only the caller knows whether it still
  // wants the change, and for how long. `answered`: the status is the array's.
  absl::Status Call(Send send, absl::Duration timeout, const std::function<bool()>& abandoned,
                    bool* answered) {
    const auto end = Clock::now() + absl::ToChronoNanoseconds(timeout);
    if (const grpc::Status lost = WaitForConnection(); !lost.ok()) return TransportError(lost, timeout);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + LeftUntil(end)));
    context.AddMetadata(wire::kArrayKey, array_);
    if (const std::string known = pool_.ToText(); !known.empty()) context.AddMetadata(wire::kPoolKey, known);
    // gRPC wants a queue to be empty when it is destroyed. The loop below ends with the call's only event,
    // also after TryCancel.
    grpc::CompletionQueue queue;
    grpc::Status status;
    const std::shared_ptr<void> call = send(*stub_, &context, &queue, &status);
    void* tag = nullptr;
    bool ok = false;
    while (queue.AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + kRecheckInterval)) ==
           grpc::CompletionQueue::TIMEOUT) {
      // gRPC's own timers may wait for the time of day, which somebody has set back.
      if (Clock::now() >= end || (abandoned && abandoned())) context.TryCancel();
    }
    if (status.error_code() == grpc::StatusCode::CANCELLED && Clock::now() >= end)
      status = {grpc::StatusCode::DEADLINE_EXCEEDED, "no answer"};
    // Also an error may be the array's own answer, and then the agent is well.
    const std::string answerer = TrailerOf(context, wire::kArrayKey);
    const bool is_served = TrailerOf(context, wire::kNotServingKey).empty();
    if (!is_served || (!answerer.empty() && answerer != array_)) return AgentError(status);
    *answered = status.ok() || !answerer.empty();
    if (const absl::Status copy = LearnCopy(context, *answered); !copy.ok()) {
      *answered = false;
      return copy;
    }
    NoteOutcome(*answered ? grpc::Status::OK : status);
    if (*answered) return FromGrpcStatus(status);
    if (abandoned && abandoned()) return absl::CancelledError("nobody waits for it now");
    return TransportError(status, timeout);
  }

 private:
  // Fails fast while the agent is away. An attempt to connect to a dead host takes seconds, and gRPC makes
  // calls wait for the first one after a connection broke. The caller may be a node that can ask another
  // controller, whose path to the agent is better.
  grpc::Status WaitForConnection() {
    grpc::Status lost;
    {
      const absl::MutexLock lock(&mutex_);
      lost = lost_;
    }
    if (lost.ok() || channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kReconnect)))
      return grpc::Status::OK;
    return lost;
  }

  // Not OK: what answered, or refused the call for it, has another copy of the pool than the array's.
  absl::Status LearnCopy(const grpc::ClientContext& context, bool answered) {
    const auto found = ReadPoolIdentity(TrailerOf(context, wire::kPoolKey));
    if (!answered && !found) return absl::OkStatus();
    const absl::Status copy = pool_.Learn(found);
    const absl::MutexLock lock(&mutex_);
    const bool news = std::exchange(other_copy_, !copy.ok()) == copy.ok();
    if (copy.ok()) return copy;
    const std::string problem = absl::StrCat("array ", array_, " at ", address_, ": ", copy.message());
    if (news) LogError("array", problem);
    return absl::UnavailableError(problem);
  }

  // Only UNAVAILABLE means that the connection failed. A timeout is no news: the agent may just be slow.
  void NoteOutcome(const grpc::Status& status) {
    const absl::MutexLock lock(&mutex_);
    if (status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE) lost_ = status;
  }

  // The agent is there, and says for itself that it does not serve this array, or is another one's. Its pool
  // is no copy of the array's.
  absl::Status AgentError(const grpc::Status& status) {
    NoteOutcome(grpc::Status::OK);
    return absl::UnavailableError(
        absl::StrCat("array ", array_, " at ", address_, ": ", status.error_message()));
  }

  // An error without the agent's metadata: it was refused, lost or cut short on the way.
  absl::Status TransportError(const grpc::Status& status, absl::Duration timeout) const {
    const std::string which = absl::StrCat("array ", array_, " at ", address_, ": ");
    switch (status.error_code()) {
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return absl::DeadlineExceededError(absl::StrCat(
            which, "no answer within ", absl::FormatDuration(absl::Ceil(timeout, absl::Milliseconds(1))),
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

  const std::string array_, address_;
  KnownPool& pool_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
  absl::Mutex mutex_;
  grpc::Status lost_ ABSL_GUARDED_BY(mutex_);        // why the agent was not reached at last; OK: it was
  bool other_copy_ ABSL_GUARDED_BY(mutex_) = false;  // what it has is not the array's pool
};

AgentCaller::AgentCaller(const RemoteArrayOptions& options,
                         const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : array_(options.name), copy_timeout_(options.copy_timeout), pool_(std::make_unique<KnownPool>()) {
  for (const std::string& address : options.addresses)
    agents_.push_back(std::make_unique<Agent>(
        array_, address, *pool_, grpc::CreateCustomChannel(address, credentials, ArgumentsFor(options))));
  if (agents_.size() == 1)
    asked_ = true;
  else
    questions_ = std::make_unique<Periodic>(kAskCopies, [this] { AskWhichCopies(); });
}

AgentCaller::~AgentCaller() { closing_ = true; }

void AgentCaller::AskWhichCopies() {
  const array::v1::CheckRequest request;
  for (const std::unique_ptr<Agent>& agent : agents_) {
    array::v1::CheckResponse response;
    bool answered = false;
    (void)agent->Call(
        SendOf(&Stub::AsyncCheck, request, &response), copy_timeout_, [this] { return closing_.load(); },
        &answered);
    if (closing_) break;
  }
  const SteadyLock lock(&mutex_);
  asked_ = true;
}

absl::Status AgentCaller::CallEach(Send send, absl::Duration timeout,
                                   const std::function<bool()>& abandoned) {
  // A clock that is set back meanwhile must not keep the caller.
  const auto end = Clock::now() + absl::ToChronoNanoseconds(timeout);
  {
    const SteadyLock lock(&mutex_);
    mutex_.AwaitUntil(absl::Condition(&asked_), SteadyDeadline(timeout));
  }
  const size_t first = in_use_;
  std::vector<std::string> problems;
  absl::Status status;
  for (size_t i = 0; i < agents_.size() && (i == 0 || Clock::now() < end); ++i) {
    const size_t number = (first + i) % agents_.size();
    bool answered = false;
    status = agents_[number]->Call(send, LeftUntil(end), abandoned, &answered);
    if (answered) {
      if (in_use_.exchange(number) != number)
        LogInfo("array", "another agent of the array answers",
                {{"array", array_}, {"address", agents_[number]->address()}});
      return status;
    }
    problems.emplace_back(status.message());
    if (!absl::IsUnavailable(status)) break;
  }
  // One that took the call and is silent is not asked first again.
  if (absl::IsDeadlineExceeded(status)) in_use_ = (first + problems.size()) % agents_.size();
  return absl::Status(status.code(), absl::StrJoin(problems, "; "));
}

}  // namespace lunkeeper
