#pragma once
// The arrays of one cluster, by name. An id leads back to its array, because it begins with the array's name:
// `<array>-v<16 hex digits>` for a volume, `-s…` for a snapshot.
//
// Thread-safe. Which arrays there are may change at any time; what All has returned stays usable while it is
// held.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/array/array.h"

namespace lunkeeper {

struct NamedArray {
  std::string name;
  std::shared_ptr<Array> array;
  bool is_default = false;  // for volumes whose array nobody has named
};

class Arrays {
 public:
  virtual ~Arrays() = default;
  // In order of name; at least one.
  virtual std::vector<NamedArray> All() = 0;
};

// That one, for ever.
std::unique_ptr<Arrays> MakeOneArray(std::string name, std::shared_ptr<Array> array);

// The one of that name; null: there is none.
std::shared_ptr<Array> FindArray(Arrays& arrays, const std::string& name);

// The array's name in a volume's or snapshot's id; empty if it is no id of ours.
std::string ArrayNameIn(const std::string& id);

// Where the object with this id is. NOT_FOUND: it is no id of ours. FAILED_PRECONDITION: its array is not
// among these, so nobody can tell whether it is still there.
absl::StatusOr<std::shared_ptr<Array>> ArrayOf(Arrays& arrays, const std::string& id);

// All of them as one Array, for those who go by ids. A call about a volume or snapshot goes to its array
// alone, whatever becomes of the others; a list is of all arrays, and fails when one of them cannot be
// reached. CreateVolume and Capacity go to the default one. Terms, fences and heartbeat LUNs are each array's
// own: FAILED_PRECONDITION for them when there are several. `arrays` outlives it.
std::unique_ptr<Array> MakeArrayRouter(Arrays& arrays);

}  // namespace lunkeeper
