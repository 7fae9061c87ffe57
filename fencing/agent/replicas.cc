#include "fencing/agent/replicas.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/protocol/answer_mark.h"

// A thread of its own resolves the configured names every five seconds and keeps one gRPC channel for each
// numeric address. Replicas that another one has named are added by the thread that brings the name. Callers'
// threads pick channels under the mutex and make blocking calls without it.
//
// The names are resolved here and not by gRPC: heartbeats must go to every replica, and gRPC's resolver would
// pick one replica for each channel.
namespace lunkeeper {
namespace {

constexpr absl::Duration kRefreshEvery = absl::Seconds(5);
// A replica names one for as long as that asks it, and for 15 s more.
constexpr std::chrono::seconds kNamedFor(15);
constexpr size_t kMostReplicas = 32;  // what others name opens no more connections than this
// Long enough not to flood controllers that are starting, short enough that a mount does not notice.
constexpr absl::Duration kPauseBetweenRounds = absl::Milliseconds(200);
// One that does not reach the array that a call is about takes its time to say so, for each call.
constexpr std::chrono::seconds kAskedLast(10);
constexpr absl::Duration kLongestCall = absl::Hours(24);  // whatever the caller would wait

using Clock = std::chrono::steady_clock;

// Whether the status of a call comes from gRPC or the network, and not from a replica's handler. Such a call
// may be repeated at another replica; all calls of the protocol are idempotent.
bool IsUnanswered(const absl::Status& status, const grpc::ClientContext& context) {
  // Replicas say UNAVAILABLE themselves while they stop, or when they cannot reach what they need. Nobody on
  // this side cancels a call, so CANCELLED means that the replica was stopped while it handled the call.
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return true;
  // A replica whose wait for a grant was in vain says DEADLINE_EXCEEDED, and so does gRPC when a replica is
  // silent. A replica that has no room for the call, or gRPC there, says RESOURCE_EXHAUSTED, and so does an
  // array for too many volumes. Only a replica's answer to the call itself has the mark.
  return (absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status)) && !HasAnswerMark(context);
}

// The numeric addresses of a name; nullopt: the name could not be resolved. With AI_NUMERICHOST only what is
// a number can be, and nobody is asked.
std::optional<std::vector<std::string>> ResolveName(const HostPort& where, int flags = 0) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) {
    if (flags == 0)
      LogWarn("agent", "a controller's name leads nowhere",
              {{"name", where.host}, {"error", ::gai_strerror(error)}});
    return std::nullopt;
  }
  std::vector<std::string> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      continue;
    }
    const bool v6 = each->ai_family == AF_INET6;
    addresses.push_back(v6 ? absl::StrCat("ipv6:[", host, "]:", port)
                           : absl::StrCat("ipv4:", host, ":", port));
  }
  ::freeaddrinfo(found);
  return addresses;
}

// What became of the tries of a call that no replica has answered.
class Tries {
 public:
  void NoteTry(const Replica& replica, const absl::Status& status, absl::Duration took) {
    std::string& outcome = outcomes_[replica.address];
    const bool ran_out = absl::IsDeadlineExceeded(status);
    // The last try may have had next to no time left, which says less than the one before.
    if (ran_out && took < kShortTry && !outcome.empty()) return;
    const bool is_reached = replica.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    some_are_silent_ |= ran_out && is_reached;
    outcome = ran_out && is_reached
                  ? absl::StrCat("has the call, and was silent for ", absl::FormatDuration(Rounded(took)))
                  : std::string(status.message());
  }
  absl::Status ToStatus(const std::string& what, const std::vector<std::string>& configured) const {
    const std::string asked = absl::StrJoin(
        outcomes_, "; ", [](std::string* text, const std::pair<std::string, std::string>& outcome) {
          absl::StrAppend(text, outcome.first, ": ", outcome.second);
        });
    if (some_are_silent_) {
      return absl::UnavailableError(absl::StrCat(what, ": no controller answered in time (", asked,
                                                 "); one that is reached and silent mostly waits for an "
                                                 "array: see what its agent logs, and how many "
                                                 "grants it has for each tgtd"));
    }
    return absl::UnavailableError(
        absl::StrCat(what, ": no controller answers at ", absl::StrJoin(configured, ", "), " (",
                     outcomes_.empty() ? "their names lead nowhere" : asked,
                     "); see that the controllers run and that this node reaches them"));
  }

 private:
  static constexpr absl::Duration kShortTry = absl::Seconds(1);
  static absl::Duration Rounded(absl::Duration took) { return absl::Trunc(took, absl::Milliseconds(100)); }

  std::map<std::string, std::string> outcomes_;  // by the replica's address
  bool some_are_silent_ = false;
};

}  // namespace

Replicas::Replicas(ReplicaOptions options)
    : options_(std::move(options)), refresh_(kRefreshEvery, [this] { RefreshReplicas(); }) {}

void Replicas::RefreshReplicas() {
  std::map<std::string, std::string> names;  // by numeric address
  bool complete = true;
  for (const std::string& address : options_.addresses) {
    const auto where = ParseHostPort(address);  // the options' parser has refused what is none
    const auto resolved = where ? ResolveName(*where) : std::nullopt;
    complete = complete && resolved.has_value();
    if (!resolved) continue;
    for (const std::string& each : *resolved) {
      names.emplace(each, options_.server_name.empty() ? where->host : options_.server_name);
    }
  }
  SteadyLock lock(&mutex_);
  for (const auto& [address, name] : names) {
    auto& replica = replicas_[address].replica;
    if (replica == nullptr) replica = ConnectTo(address, name);
  }
  // An address goes only when every name was resolved: a name server that fails must not cost us replicas.
  if (!complete) return;
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(replicas_, [&](const auto& each) {
    const auto& named_at = each.second.named_at;
    return !names.contains(each.first) && (!named_at || now - *named_at >= kNamedFor);
  });
}

// Its certificate has to be of the configured name, so no wrong address gets this node's token.
void Replicas::AddNamedReplicas(const std::vector<std::string>& addresses) {
  if (options_.addresses.empty()) return;
  const auto configured = ParseHostPort(options_.addresses.front());
  const std::string name =
      options_.server_name.empty() && configured ? configured->host : options_.server_name;
  for (const std::string& address : addresses) {
    const auto where = ParseHostPort(address);
    const auto resolved = where ? ResolveName(*where, AI_NUMERICHOST) : std::nullopt;
    if (!resolved) continue;
    SteadyLock lock(&mutex_);
    for (const std::string& each : *resolved) {
      if (replicas_.size() >= kMostReplicas && !replicas_.contains(each)) continue;
      auto& entry = replicas_[each];
      if (entry.replica == nullptr) {
        entry.replica = ConnectTo(each, name);
        LogInfo("agent", "another controller names this one", {{"address", each}});
      }
      entry.named_at = std::chrono::steady_clock::now();
    }
  }
}

std::shared_ptr<const Replica> Replicas::ConnectTo(const std::string& address,
                                                   const std::string& name) const {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(name);
  // CallAny repeats calls at other replicas. gRPC's own retries would repeat them at the same one, and gRPC
  // 1.51 was seen to abort the process in that code.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A ping after two silent seconds, and two seconds for its answer: with the checks in between, a dead peer
  // is noticed within about five seconds. It must be well below a node's grace period at the controllers.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // gRPC uses this value as the time limit of a connection attempt as well.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  auto channel = grpc::CreateCustomChannel(address, options_.credentials, arguments);
  return std::make_shared<const Replica>(
      Replica{address, channel, coordinator::v1::Coordinator::NewStub(channel)});
}

std::vector<std::shared_ptr<const Replica>> Replicas::ListReplicas(absl::Time deadline) {
  std::vector<std::shared_ptr<const Replica>> fine, failed;
  {
    SteadyLock lock(&mutex_);
    const auto known = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !replicas_.empty(); };
    mutex_.AwaitUntil(absl::Condition(&known), SteadyDeadline(deadline));
    const auto now = Clock::now();
    for (const auto& [address, entry] : replicas_) {
      const bool failed_now = entry.failed_at && now - *entry.failed_at < kAskedLast;
      (failed_now ? failed : fine).push_back(entry.replica);
    }
  }
  fine.insert(fine.end(), failed.begin(), failed.end());
  std::stable_partition(fine.begin(), fine.end(), [](const auto& replica) {
    return replica->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  });
  return fine;
}

void Replicas::NoteOutcome(const Replica& replica, bool answered) {
  SteadyLock lock(&mutex_);
  const auto entry = replicas_.find(replica.address);
  if (entry == replicas_.end()) return;
  entry->second.failed_at = answered ? std::nullopt : std::make_optional(Clock::now());
}

absl::Status Replicas::PrepareCall(grpc::ClientContext* context, absl::Time deadline) const {
  std::ifstream file(options_.token_file);
  std::string token{std::istreambuf_iterator<char>(file), {}};
  absl::StripAsciiWhitespace(&token);
  if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
    return absl::UnauthenticatedError(absl::StrCat("there is no token in ", options_.token_file));
  }
  context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  context->set_deadline(absl::ToChronoTime(deadline));
  return absl::OkStatus();
}

absl::Status Replicas::CallAny(const std::string& what, absl::Time deadline, const Call& call) {
  Tries tries;
  // A clock that is set back meanwhile must not keep the caller: a heartbeat to an array may wait for this.
  const auto end = Clock::now() + absl::ToChronoNanoseconds(
                                      std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kLongestCall));
  const auto left = [end] { return absl::FromChrono(end - Clock::now()); };
  while (left() > absl::ZeroDuration()) {
    for (const auto& replica : ListReplicas(absl::Now() + left())) {
      // One that there is no time left to ask has not failed: it is to be asked first the next time.
      if (left() <= absl::ZeroDuration()) break;
      grpc::ClientContext context;
      RETURN_IF_ERROR(PrepareCall(&context, absl::Now() + left()));
      const auto began = Clock::now();
      const absl::Status status = FromGrpcStatus(call(*replica->stub, &context));
      const bool answered = !IsUnanswered(status, context);
      NoteOutcome(*replica, answered);
      if (answered) return status;
      tries.NoteTry(*replica, status, absl::FromChrono(Clock::now() - began));
    }
    absl::SleepFor(std::min(kPauseBetweenRounds, left()));
  }
  return tries.ToStatus(what, options_.addresses);
}

}  // namespace lunkeeper
