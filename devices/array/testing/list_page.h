#pragma once
// Pages of a list, for arrays that keep their objects in a map.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// One page of `items`, keyed by id, from behind the id in `token`. `select` gives the item, or nullptr to
// leave it out.
template <class T, class Map, class Select>
absl::StatusOr<Page<T>> ListPage(const Map& items, const std::string& token, size_t limit,
                                 const std::string& prefix, Select select) {
  if (!token.empty() && !absl::StartsWith(token, prefix)) {
    return absl::AbortedError(absl::StrCat("list: the token \"", token, "\" is not ours: start without one"));
  }
  Page<T> page;
  std::string last;
  for (auto it = items.upper_bound(typename Map::key_type(token)); it != items.end(); ++it) {
    const T* item = select(it->second);
    if (item == nullptr) continue;
    if (limit != 0 && page.items.size() == limit) {
      page.next_token = last;
      break;
    }
    page.items.push_back(*item);
    last = it->first.value();
  }
  return page;
}

}  // namespace lunkeeper
