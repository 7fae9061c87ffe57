#pragma once
// How tgtd opens an image, as the image's store says (image_store.h).

#include <memory>
#include <string>

namespace lunkeeper {

class ImageErrors;

struct LunBacking {
  std::string path;                                // no commas
  std::string type = "rdwr";                       // tgtd's bstype
  std::string options = {};                        // its bsopts, for this type
  bool clients_are_registered = false;             // RegisterOpened, before anybody may log in
  bool discards_right = true;                      // tgtd answers them as it must
  bool may_be_silent_alone = false;                // while other images answer
  std::shared_ptr<const ImageErrors> errors = {};  // of a file; none: the cache id is the array's
};

}  // namespace lunkeeper
