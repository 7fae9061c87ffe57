#include "devices/array/remote/agent_channel.h"

namespace lunkeeper {
namespace {

// Room for a list of more than 100,000 grants; by default gRPC takes no answer of more than 4 MiB.
constexpr int kMostAnswerBytes = 64 << 20;

}  // namespace

grpc::ChannelArguments ArgumentsFor(const RemoteArrayOptions& options) {
  grpc::ChannelArguments arguments;
  // For an address that is not in the agent's certificate, such as an IP.
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  // To notice within seconds that a host is gone, and that it is back. The minimum backoff is also the
  // longest that one attempt to connect may take (gRPC's doc/connection-backoff.md).
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection for each object: gRPC would share one among equal channels, and then a new object, made
  // because certificates were replaced, would go on with the old ones.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 64 << 10);  // long error messages
  arguments.SetMaxReceiveMessageSize(kMostAnswerBytes);
  return arguments;
}

}  // namespace lunkeeper
