#include "fencing/agent/replicas.h"

#include <netdb.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/host_port.h"
#include "base/log.h"
#include "devices/connection_message.h"
#include "fencing/protocol/answer_mark.h"
#include "fencing/protocol/messages.h"

// A thread of its own resolves the configured names every five seconds; the table keeps one gRPC channel for
// each numeric address. Replicas that another one has named are added by the thread that brings the name.
//
// The names are resolved here and not by gRPC: heartbeats must go to every replica, and gRPC's resolver would
// pick one replica for each channel.
namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

constexpr absl::Duration kRefreshEvery = absl::Seconds(5);
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

}  // namespace

Replica::Replica(std::string its_address, std::shared_ptr<grpc::Channel> its_channel, std::string token_file)
    : ReplicaConnection(std::move(its_address)),
      channel(std::move(its_channel)),
      stub(v1::Coordinator::NewStub(channel)),
      token_file_(std::move(token_file)) {}

bool Replica::IsConnected() const {
  return channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

absl::Status Replica::PrepareCall(grpc::ClientContext* context, absl::Time deadline) const {
  std::ifstream file(token_file_);
  std::string token{std::istreambuf_iterator<char>(file), {}};
  absl::StripAsciiWhitespace(&token);
  if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
    return absl::UnauthenticatedError(absl::StrCat("there is no token in ", token_file_));
  }
  context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  context->set_deadline(absl::ToChronoTime(deadline));
  return absl::OkStatus();
}

template <class Request, class Response>
CallOutcome Replica::Call(Method<Request, Response> method, const Request& request, absl::Duration limit,
                          Response* response) const {
  grpc::ClientContext context;
  if (absl::Status status = PrepareCall(&context, absl::Now() + limit); !status.ok()) return {status};
  absl::Status status = FromGrpcStatus((*stub.*method)(&context, request, response));
  return {std::move(status), HasAnswerMark(context)};
}

CallOutcome Replica::AcquireGrant(const NodeId& node, const VolumeId& volume, const WantedUse& use,
                                  absl::Duration wait, absl::Duration limit, Grant* grant) const {
  v1::AcquireRequest request;
  request.set_node(node.value());
  request.set_volume_id(volume.value());
  request.set_access(WriteAccess(use.access));
  request.set_mode(WriteMode(use.mode));
  request.set_wait_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(wait)));
  v1::Grant response;
  CallOutcome outcome = Call(&v1::Coordinator::Stub::Acquire, request, limit, &response);
  if (outcome.status.ok()) *grant = ReadGrant(request, response);
  return outcome;
}

CallOutcome Replica::ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation,
                                  absl::Duration limit) const {
  v1::ReleaseRequest request;
  request.set_node(node.value());
  request.set_volume_id(volume.value());
  request.set_generation(generation);
  v1::ReleaseResponse response;
  return Call(&v1::Coordinator::Stub::Release, request, limit, &response);
}

CallOutcome Replica::ListGrants(const NodeId& node, const VolumeId& volume, absl::Duration limit,
                                std::vector<HeldGrant>* held) const {
  v1::HeldRequest request;
  request.set_node(node.value());
  request.set_volume_id(volume.value());
  v1::HeldResponse response;
  CallOutcome outcome = Call(&v1::Coordinator::Stub::Held, request, limit, &response);
  for (const auto& grant : response.grants()) {
    held->push_back({VolumeId(grant.volume_id()), grant.generation(), Iqn(grant.target()),
                     grant.taken_by_orchestrator() ? GrantOwner::kOrchestrator : GrantOwner::kNode});
  }
  return outcome;
}

CallOutcome Replica::OpenHeartbeatLun(const NodeId& node, const std::string& array, absl::Duration limit,
                                      Connection* connection) const {
  v1::OpenHeartbeatLunRequest request;
  request.set_node(node.value());
  request.set_array(array);
  request.set_signs(true);
  devices::v1::Connection response;
  CallOutcome outcome = Call(&v1::Coordinator::Stub::OpenHeartbeatLun, request, limit, &response);
  if (outcome.status.ok()) *connection = FromMessage(response);
  return outcome;
}

Replicas::Replicas(ReplicaOptions options)
    : options_(std::move(options)),
      table_([this](const std::string& address, const std::string& name) { return ConnectTo(address, name); },
             absl::StrJoin(options_.addresses, ", ")),
      refresh_(kRefreshEvery, [this] { RefreshReplicas(); }) {}

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
  table_.NoteResolved(names, complete);
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
    for (const std::string& each : *resolved) table_.NoteNamed(each, name);
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
  return std::make_shared<const Replica>(address, std::move(channel), options_.token_file);
}

std::vector<std::shared_ptr<const Replica>> Replicas::ListReplicas(absl::Time deadline) {
  table_.AwaitReplicas(deadline);
  std::vector<std::shared_ptr<const Replica>> replicas;
  for (const auto& each : table_.ListReplicas())
    replicas.push_back(std::static_pointer_cast<const Replica>(each));  // ConnectTo made it
  return replicas;
}

}  // namespace lunkeeper
