#pragma once
// Kubernetes' quantities: "500m" of a processor, "1.5Gi" of memory. A pure function, thread-safe.

#include <optional>
#include <string>

namespace lunkeeper::kube {

// Bytes, or whatever it counts; nullopt: it is no quantity of Kubernetes.
std::optional<double> ParseQuantity(const std::string& text);

}  // namespace lunkeeper::kube
