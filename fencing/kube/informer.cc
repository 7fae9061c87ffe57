#include "fencing/kube/informer.h"

namespace lunkeeper::kube {

std::string KeyOf(const Json& object) {
  const std::string space = TextAt(object, {"metadata", "namespace"});
  const std::string name = TextAt(object, {"metadata", "name"});
  return space.empty() ? name : space + "/" + name;
}

}  // namespace lunkeeper::kube
