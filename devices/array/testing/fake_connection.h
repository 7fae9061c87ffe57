#pragma once
// What a node would log in with, if there were anything to log in to.

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "devices/array/grant_store.h"

namespace lunkeeper {

// The target's name ends with the generation, as a real array's: no name is ever used twice.
inline Connection MakeFakeConnection(const std::string& array, const std::string& volume, const NodeId& node,
                                     Generation generation) {
  return {.portal = "127.0.0.1:3260",
          .target = Iqn(absl::StrCat("iqn.2026-11.io.lunkeeper:", array, ":", volume, ":", generation)),
          .initiator = Iqn(absl::StrCat("iqn.2026-11.io.lunkeeper:node:", node.value())),
          .lun = 1,
          .chap = {"lunkeeper", absl::StrFormat("fake-secret-%04x", generation)},
          .target_chap = {"target", "secret-of-target"}};
}

}  // namespace lunkeeper
