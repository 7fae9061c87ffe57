#include "devices/array/tgt/image_lock.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {

// Of <cls/rbd/cls_rbd_types.h> and librbd: it is a lock of the image's header, an object named by its id.
absl::Status BreakImageLock(const CephPool& pool, const RbdImage& image,
                            const std::set<ClientAddress>& dead) {
  constexpr char kLock[] = "rbd_lock";
  char id[256] = "";
  const int named = pool.library().rbd_get_id(image.get(), id, sizeof(id));
  if (named < 0) return CephError("ask an image for its id", named);
  const std::string header = absl::StrCat("rbd_header.", id);
  ASSIGN_OR_RETURN(const CephPool::Locker holder, pool.FindLocker(header, kLock));
  return dead.contains(holder.address) ? pool.BreakLock(header, kLock, holder) : absl::OkStatus();
}

}  // namespace lunkeeper
