#pragma once
// Lets a volume be moved again of which nodes died, at an operator's request (`lunkeeper allow`): removes the
// annotation that keeps it where it is. Blocks until the API server has answered, or until the deadline;
// stateless. Repetition: a volume that is not held back is OK, and nothing changes.
//
// Failure: NOT_FOUND, there is no such volume; others come from the API server.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

// `volume` is its id or its PersistentVolume's name. Prints what was done.
absl::Status AllowVolume(kube::KubeClient& client, const std::string& volume, absl::Time deadline,
                         const std::function<void(const std::string& line)>& print_line);

}  // namespace lunkeeper::fencing
