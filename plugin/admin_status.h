#pragma once
// Parts of what `lunkeeper status` is answered: what a process knows besides its arrays. Thread-safe.

#include "absl/status/status.h"
#include "plugin/admin.pb.h"
#include "plugin/backends.h"

namespace lunkeeper {

// This node's block devices. An error: the data path does not answer, within about a second.
absl::Status FillDevices(const Backends& backends, admin::v1::StatusResponse* out);
// Which gateways serve arrays on Ceph.
void FillGateways(const Backends& backends, admin::v1::StatusResponse* out);
// The certificates in use, and when they end.
void FillCertificates(const Backends& backends, admin::v1::StatusResponse* out);

}  // namespace lunkeeper
