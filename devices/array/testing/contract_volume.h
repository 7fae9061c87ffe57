#pragma once
// The volumes that the contracts of arrays make.

#include <catch2/catch.hpp>
#include <string>

#include "devices/array/array.h"

namespace lunkeeper::testing {

// Of 4 MiB.
inline VolumeSpec ContractSpec(const std::string& name) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 4 << 20;
  return spec;
}

inline Volume MakeContractVolume(Array& array, const VolumeSpec& spec) {
  const auto made = array.volumes().CreateVolume(spec);
  INFO(made.status());
  REQUIRE(made.ok());
  return *made;
}
inline VolumeId MakeContractVolume(Array& array, const std::string& name) {
  return MakeContractVolume(array, ContractSpec(name)).id;
}

}  // namespace lunkeeper::testing
