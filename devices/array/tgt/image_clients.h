#pragma once
// A store's clients by which tgtd has images open (image_store.h), by their addresses.

#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace lunkeeper {

using ImageClients = std::map<std::string, std::set<std::string>>;  // by the image's path

struct LunsOfImage {
  size_t most = 1;         // that tgtd may have
  bool one_is_new = true;  // it was opened just before
};

}  // namespace lunkeeper
