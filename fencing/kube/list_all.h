#pragma once
// All objects of a kind, for callers who want them once: an operator's command. Controllers watch instead.
// Failure: that of any page; then there is no list.

#include <vector>

#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

absl::StatusOr<std::vector<Json>> ListAll(KubeClient& client, const Selection& selection,
                                          const Limits& limits);

}  // namespace lunkeeper::kube
