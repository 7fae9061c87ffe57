#pragma once
// The CSI Controller service over arrays: checks a request, calls the array, answers. It keeps only the locks
// of calls in progress, so it may be killed at any line, and every call may be repeated.
//
// Thread-safe. The arrays outlive it. An array that is down fails its own calls, and lists of all volumes;
// other arrays' calls go on. Of two calls for the same object at the same time, the second is ABORTED.

#include <cstddef>
#include <memory>

#include "csi/v1/csi.grpc.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

struct ControllerOptions {
  size_t max_volumes_per_node = 0;  // on one array; 0: no limit
};

std::unique_ptr<csi::v1::Controller::Service> MakeControllerService(Arrays& arrays,
                                                                    ControllerOptions options);

}  // namespace lunkeeper
