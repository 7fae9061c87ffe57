#pragma once
// The CSI Controller service over an Array: checks a request, calls the array, answers. It keeps nothing but
// the locks of running calls, so it may be killed at any line and every call may be repeated.
//
// Thread-safe. The array outlives it. Two calls about the same object at the same time: the second is
// ABORTED.

#include <cstddef>
#include <memory>
#include <string>

#include "csi/v1/csi.grpc.pb.h"
#include "devices/array/array.h"

namespace lunkeeper {

struct ControllerOptions {
  std::string array_name;           // in topology: array.lunkeeper.io/<array_name>
  size_t max_volumes_per_node = 0;  // 0: no limit
};

std::unique_ptr<csi::v1::Controller::Service> MakeControllerService(Array* array, ControllerOptions options);

}  // namespace lunkeeper
