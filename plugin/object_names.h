#pragma once
// Names of Kubernetes' objects as operators write them and as manifests need them. Pure functions.

#include <optional>
#include <string>
#include <utility>

#include "fencing/kube/json.h"

namespace lunkeeper {

// RFC 1123: what Kubernetes takes for an object's name.
bool IsObjectName(const std::string& name);
// Of "namespace/name"; nullopt: it is not written so.
std::optional<std::pair<std::string, std::string>> SplitNames(const std::string& text);
// "namespace/name" of an object's metadata, or of a reference to one.
std::string NamesText(const kube::Json& reference);
std::string ObjectName(const kube::Json& object);

}  // namespace lunkeeper
