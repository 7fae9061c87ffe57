#pragma once
// The Admin service (admin.proto): an operator's view of this process, and fences by hand. Thread-safe;
// `backends` outlives it. A call about an array, in a process that has none, is FAILED_PRECONDITION.

#include <memory>
#include <string>

#include "plugin/admin.grpc.pb.h"
#include "plugin/backends.h"

namespace lunkeeper {

std::unique_ptr<admin::v1::Admin::Service> MakeAdminService(const Backends* backends,
                                                            const std::string& mode);

}  // namespace lunkeeper
