#include "fencing/kube/list_all.h"

#include <utility>

#include "base/status_macros.h"

namespace lunkeeper::kube {

absl::StatusOr<std::vector<Json>> ListAll(KubeClient& client, const Selection& selection,
                                          const Limits& limits) {
  std::vector<Json> found;
  PageRequest page;
  do {
    ASSIGN_OR_RETURN(const PageEnd end,
                     client.ListPage(
                         selection, page, [&](Json object) { found.push_back(std::move(object)); }, limits));
    page.next = end.next;
  } while (!page.next.empty());
  return found;
}

}  // namespace lunkeeper::kube
