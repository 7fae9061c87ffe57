#include "fencing/kube/informer.h"

namespace lunkeeper::kube {

std::string KeyOf(const Json& object) {
  // Kubernetes allows no slash in names, so keys of different objects never collide.
  const std::string space = TextAt(object, {"metadata", "namespace"});
  const std::string name = TextAt(object, {"metadata", "name"});
  return space.empty() ? name : space + "/" + name;
}

}  // namespace lunkeeper::kube
