#pragma once
// The CSI GroupController service over arrays: snapshots of several volumes, of one moment. As the Controller
// service it checks, calls the array and answers, keeps nothing, and every call may be repeated.
//
// Thread-safe. The arrays outlive it.

#include <memory>

#include "csi/v1/csi.grpc.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

std::unique_ptr<csi::v1::GroupController::Service> MakeGroupControllerService(Arrays& arrays);

}  // namespace lunkeeper
