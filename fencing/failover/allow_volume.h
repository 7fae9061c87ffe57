#pragma once
// Lets volumes be moved again of which nodes died, at an operator's request (`lunkeeper allow`): removes
// the annotation that keeps them where they are. Blocks until the API server has answered, or until the
// deadline; stateless. Repetition: a volume that is not held back is OK, and nothing changes.
//
// Failure: NOT_FOUND, there is no such volume, and nothing was changed; others come from the API server, and
// volumes that were printed are allowed.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

// Each is a volume's id or its PersistentVolume's name; none: all that nodes died of. Prints what was done.
absl::Status AllowVolumes(kube::KubeClient& client, const std::vector<std::string>& volumes,
                          absl::Time deadline,
                          const std::function<void(const std::string& line)>& print_line);

}  // namespace lunkeeper::fencing
