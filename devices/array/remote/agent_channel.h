#pragma once
// How a client's connection to an array agent behaves. Pure; thread-safe.

#include <grpcpp/support/channel_arguments.h>

#include "devices/array/remote/remote_array.h"

namespace lunkeeper {

grpc::ChannelArguments ArgumentsFor(const RemoteArrayOptions& options);

}  // namespace lunkeeper
