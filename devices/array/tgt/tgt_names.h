#pragma once
// The names of one cluster's objects in the tgt array. devices/array/name_index.h says what the call does and
// how it fails. Thread-safe; it keeps nothing.

#include <string>
#include <utility>

#include "devices/array/name_index.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {

class TgtNames final : public NameIndex {
 public:
  TgtNames(const TgtParts& parts, ClusterId cluster) : parts_(parts), cluster_(std::move(cluster)) {}

  absl::StatusOr<std::string> FindNamed(NamedKind kind, const std::string& name) override;

 private:
  const TgtParts& parts_;
  const ClusterId cluster_;
};

}  // namespace lunkeeper
