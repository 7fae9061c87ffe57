#pragma once
// The paths of the API server's objects. Pure functions, thread-safe.

#include <string>
#include <utility>
#include <vector>

#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// /api/v1/namespaces/db/pods/db-0/status. Every part is percent-encoded; an object without a name is its
// kind.
std::string PathOf(const ObjectRef& object);

// "?limit=500&continue=…", without what is empty.
std::string QueryOf(const std::vector<std::pair<std::string, std::string>>& fields);

// As a person says it: "pods/db/db-0/status".
std::string Spoken(const ObjectRef& object);

}  // namespace lunkeeper::kube
