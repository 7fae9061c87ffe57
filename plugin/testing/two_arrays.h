#pragma once
// Two arrays, of which the first is the default, for tests of commands that may ask several.

#include <memory>
#include <vector>

#include "devices/array/arrays.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper {

struct TwoArrays : Arrays {
  std::shared_ptr<FakeArray> one = std::make_shared<FakeArray>(FakeArrayOptions{.name = "a1"});
  std::shared_ptr<FakeArray> two = std::make_shared<FakeArray>(FakeArrayOptions{.name = "a2"});
  std::vector<NamedArray> ListArrays() override { return {{"a1", one, true}, {"a2", two, false}}; }
};

}  // namespace lunkeeper
