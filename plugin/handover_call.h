#pragma once
// The server's side of `lunkeeper array handover`: one call of the Admin service.

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "devices/array/tgt/array_handover.h"
#include "plugin/admin.grpc.pb.h"

namespace lunkeeper {

// Hands the array over and tells the caller each step. An error: nothing has changed. Else it does not
// return: once the caller has heard all of it, or has gone, the process ends, as after a crash. Supervised,
// it starts again and stands by.
grpc::Status AnswerHandOver(const std::function<absl::Status(const HandoverWatch&)>& hand_over,
                            grpc::ServerContext& context,
                            grpc::ServerWriter<admin::v1::HandOverProgress>& writer);

}  // namespace lunkeeper
