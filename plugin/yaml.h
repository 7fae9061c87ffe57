#pragma once
// JSON as YAML, for people who read and edit a manifest before they apply it. Pure; cannot fail.

#include <string>

#include "fencing/kube/json.h"

namespace lunkeeper {

// In block style, with every text in quotes: no text is taken for a number, a date or "no". Ends with a line
// break. Keys are written as they are, so they must be plain words, as those of Kubernetes' objects are.
std::string ToYaml(const kube::Json& json);

}  // namespace lunkeeper
