#pragma once
// The store of an array whose volumes are files in a directory: how it is opened, with its catalogue.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/tgt_array.h"

namespace lunkeeper {

// What an array serves from. The catalogue goes before the images.
struct OpenedStore {
  std::unique_ptr<ImageStore> images;
  std::unique_ptr<Catalogue> catalogue;
  std::string cache_id;  // the LUNs' product id (cache_id.h)
};

// `remembered`: how many changes of the catalogue were seen before, 0 for a new one. FAILED_PRECONDITION: as
// OpenTgtArray; nothing was changed.
absl::StatusOr<OpenedStore> OpenFileStore(const TgtArrayOptions& options, uint64_t remembered);

}  // namespace lunkeeper
