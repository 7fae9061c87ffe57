#pragma once
// A store's clients by which tgtd has images open (image_store.h), by their addresses.

#include <map>
#include <set>
#include <string>

namespace lunkeeper {

using ImageClients = std::map<std::string, std::set<std::string>>;  // by the image's path

}  // namespace lunkeeper
