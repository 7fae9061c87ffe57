#include "devices/array/tgt/catalogue.h"

#include "base/status_macros.h"

namespace lunkeeper {

absl::StatusOr<std::unique_ptr<Catalogue>> Catalogue::Open(const std::string& path, const std::string& array,
                                                           const CatalogueFile::MakeRoom& make_room) {
  ASSIGN_OR_RETURN(std::unique_ptr<CatalogueFile> file, CatalogueFile::Open(path, array, make_room));
  return std::unique_ptr<Catalogue>(new Catalogue(std::move(file)));
}

}  // namespace lunkeeper
