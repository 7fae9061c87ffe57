#pragma once
// A name is one object in all arrays. Each array keeps that for itself; here the others are asked too, before
// one of them makes an object of that name. Orchestrators repeat a call until they have its answer, and the
// repeated call may be meant for another array: the default array was changed, or the node that waits is
// another one.
//
// Only arrays that answer are asked. One that is away cannot stop the others from making volumes, for days
// perhaps; if it has that name, there will be two. The log names it then, and a volume that no
// PersistentVolume refers to is listed by `lunkeeper import`.
//
// Thread-safe functions without state. All arrays are asked at the same time, and none for long.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/arrays.h"
#include "devices/array/name_index.h"

namespace lunkeeper {

// The id of the object of this name; of two, the one on the array `first`. Empty: no array that answers has
// it, or there is one array alone, which need not be asked. ABORTED: one is making it now.
absl::StatusOr<std::string> FindNamed(Arrays& arrays, const std::string& first, NamedKind kind,
                                      const std::string& name);

// ALREADY_EXISTS: it is on another array than `array`, and on that one there is none. ABORTED: as above.
absl::Status CheckNotElsewhere(Arrays& arrays, const std::string& array, NamedKind kind,
                               const std::string& name);

// ALREADY_EXISTS, in words.
absl::Status IsElsewhere(NamedKind kind, const std::string& name, const std::string& id,
                         const std::string& array);

}  // namespace lunkeeper
