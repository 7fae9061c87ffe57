#pragma once
// A backup of a pool that serves: a folder that is a pool itself, with the catalogue and every image, to be
// served in its place (docs/backup.md). It is what a power cut would have left: the catalogue of one moment,
// and each volume of a moment of its own, later than that one. What is deleted while the backup is made is
// not in it.
//
// Each volume in turn is reflinked to a file without a name, and that is copied out. So nobody's I/O waits
// but for the reflink, and whatever ends the agent leaves nothing in the pool. Meanwhile the pool keeps what
// is overwritten of that one volume, until it runs full (hold_watch.h).
//
// A backup that broke off is continued by the same call: it copies the catalogue anew, and the images that
// are not whole or were written to since they were copied (held_image.h). So what is said above is true of
// each backup that is whole. A snapshot never changes, and is kept.
//
// backup_verify.h checks a backup. Functions without state; one backup of a pool at a time. Needs root.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace lunkeeper {

class Catalogue;
class ImageStore;

struct BackupProgress {
  std::string image;  // that is being copied
  uint64_t done_images = 0, images = 0;
  uint64_t copied_bytes = 0, bytes = 0;  // that the images take
};
// Called for each image, and several times a second while one is copied; false gives up (CANCELLED).
using BackupWatch = std::function<bool(const BackupProgress&)>;

struct BackupRequest {
  std::string array;
  std::string pool;      // its directory
  std::string folder;    // absolute, on another file system; made, if its parent is there
  std::string cache_id;  // of the pool (cache_id.h)
};

// FAILED_PRECONDITION: the pool cannot reflink; the folder is on the pool's file system, is not empty, leads
// elsewhere, or has a backup of another array or one that is whole. RESOURCE_EXHAUSTED: the folder has no
// room, which is known before anything is copied, or has run full; or the pool
// has too little to hold a volume, or runs full meanwhile.
// DATA_LOSS: the pool has lost an image that the catalogue has. ABORTED: another backup is being made there.
absl::Status BackUpPool(const BackupRequest& request, Catalogue& catalogue, const ImageStore& images,
                        const BackupWatch& watch);

}  // namespace lunkeeper
