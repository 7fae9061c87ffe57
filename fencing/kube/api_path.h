#pragma once
// The URL paths of the API server's objects. Pure functions, thread-safe.

#include <string>
#include <utility>
#include <vector>

#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// Such as /api/v1/namespaces/db/pods/db-0/status, each part percent-encoded. Without a name it is the path of
// the whole kind.
std::string PathOf(const ObjectRef& object);

// "?limit=500&continue=…", without the empty fields.
std::string QueryOf(const std::vector<std::pair<std::string, std::string>>& fields);

// For messages: "pods/db/db-0/status".
std::string DisplayName(const ObjectRef& object);

}  // namespace lunkeeper::kube
