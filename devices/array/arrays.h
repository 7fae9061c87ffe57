#pragma once
// The arrays of one cluster, by name. An id leads back to its array, because it begins with the array's name:
// `<array>-v<16 hex digits>` for a volume, `-s…` for a snapshot, `-g…` for a group of them.
//
// Thread-safe. Arrays may come and go at any time; what ListArrays has returned stays usable while
// the caller holds it.

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
  // In order of name.
  virtual std::vector<NamedArray> ListArrays() = 0;
  // An operator removed it for good (remaining_arrays.h): nothing of it is used, and nothing waits for it.
  virtual bool IsRemoved(const std::string&) { return false; }
  // UNAVAILABLE: which ones were removed is not known yet, so none of them may be used.
  virtual absl::Status CheckKnown() { return absl::OkStatus(); }
};

// This array alone, for ever.
std::unique_ptr<Arrays> MakeOneArray(std::string name, std::shared_ptr<Array> array);

// The one of that name; null: there is none.
std::shared_ptr<Array> FindArray(Arrays& arrays, const std::string& name);

// The array's name in an id; empty if it is no id of ours.
std::string ArrayNameIn(const std::string& id);

// The array that has the object with this id. NOT_FOUND: it is no id of ours. FAILED_PRECONDITION: its array
// was removed, or is not among these, so nobody can tell whether the object is still there. UNAVAILABLE: as
// CheckKnown.
absl::StatusOr<std::shared_ptr<Array>> FindArrayOf(Arrays& arrays, const std::string& id);

}  // namespace lunkeeper
