#pragma once
// The Initiator whose devices belong to the data path (`lunkeeper datapath`) that listens at a control
// socket. Thread-safe: each call has a connection of its own. Nothing is kept here. Every call ends within
// `timeout`: UNAVAILABLE when nobody listens, DEADLINE_EXCEEDED when there is no answer.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/initiator.h"

namespace lunkeeper {

std::unique_ptr<Initiator> MakeUserInitiator(const std::string& socket_path,
                                             absl::Duration timeout = absl::Seconds(60));

// The devices of the data path that serves now. Unlike Initiator::List, UNAVAILABLE where it is dead,
// and with statistics for who wants them.
absl::StatusOr<std::vector<Device>> ListServedDevices(const std::string& socket_path, absl::Duration timeout,
                                                      bool statistics = false);

// Replaces the running worker by the program now at the data path's binary, under running volumes.
// FAILED_PRECONDITION: it does not go together with the running supervisor, or the kernel cannot hand
// requests on.
absl::Status UpgradeDatapath(const std::string& socket_path, absl::Duration timeout = absl::Seconds(60));
// Ends the data path. FAILED_PRECONDITION: volumes are attached.
absl::Status StopDatapath(const std::string& socket_path, absl::Duration timeout = absl::Seconds(60));

}  // namespace lunkeeper
