#pragma once
// The images of an array: the bytes of its volumes and snapshots, wherever they are. Pool keeps them as
// files. To everybody else an image's path is an opaque name, which leads from here to tgtd.
//
// Thread-safe: calls about different images go on at the same time; the caller keeps calls about one image
// apart. What a call has made lasts when it returns OK; a call that fails leaves nothing behind. One process
// owns the store while the object lives. Failure: RESOURCE_EXHAUSTED the store is full; INTERNAL any other
// error of what is below.
//
// An image is made as new, and becomes its volume's by KeepImage when its row is stored. To be deleted it is
// marked while its row still is there. So a kept image without a row is not of a call that was cut short:
// somebody restored, copied or lost a catalogue, and such an image is set aside, never deleted.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/snapshot_blocks.h"
#include "devices/array/tgt/image_clients.h"
#include "devices/array/tgt/lun_backing.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

class PoolClones;

// An image that was set aside.
struct OrphanFile {
  std::string name;
  uint64_t taken_bytes = 0;  // of the store
  absl::Time changed;
};

struct PoolImage {
  std::string path;
  uint64_t size_bytes = 0;  // behind it are zeroes
};

struct PoolClone {
  std::string from, to;
  uint64_t size_bytes = 0;  // of the clone
  bool own_space = false;   // as in ImageStore::CloneImage
};

class ImageStore {
 public:
  virtual ~ImageStore() = default;

  virtual std::string VolumePath(const VolumeId& id) const = 0;
  // `source`: the volume that it is of.
  virtual std::string SnapshotPath(const VolumeId& source, const SnapshotId& id) const = 0;
  // How tgtd is to open it. FAILED_PRECONDITION: it must not be served as it is.
  virtual absl::StatusOr<LunBacking> BackingOf(const std::string& path) const = 0;
  // For one that tgtd has open. Null: the store knows no such errors.
  virtual std::shared_ptr<const ImageErrors> WatchErrors(const std::string&) const { return nullptr; }
  // Before tgtd opens an image that it has not. UNAVAILABLE: somebody else has it open, who is named.
  virtual absl::Status CheckIsClosed(const std::string& path) const = 0;
  // UNAVAILABLE: another host may be serving the store by now, so that what is known here may be old.
  virtual absl::Status CheckHeld() const = 0;
  // OK if no other host served the store when the call began: what was known here was right then. Asks the
  // store itself, since a clock may stand still with this host. UNAVAILABLE: it may have.
  virtual absl::Status ConfirmHeld() const = 0;
  // The store's clients that have this image open now. FAILED_PRECONDITION: also somebody else than tgtd has;
  // named.
  virtual absl::StatusOr<std::set<std::string>> ListOpeners(const std::string&) const {
    return std::set<std::string>();
  }
  // tgtd is about to open this image by one client more. If this gateway dies, the next one knows.
  virtual absl::Status NoteOpening(const std::string&) const { return absl::OkStatus(); }
  // tgtd has opened it since ListOpeners answered `before`, and nobody can write to it by that LUN. Its
  // client. UNAVAILABLE: it is not seen, or cannot be registered. FAILED_PRECONDITION: others have opened it
  // at the same time, and nobody knows which one is tgtd's. `is_awaited`: asked once it is seen who has the
  // image open. Where nobody waits any more tgtd may have closed it by then, and nothing is registered.
  virtual absl::StatusOr<std::string> RegisterOpened(const std::string&, const std::set<std::string>&,
                                                     const std::function<bool()>& /*is_awaited*/) const {
    return std::string();
  }
  // Whether tgtd has, had or was to have this image open by clients of the store; by which; that some (none:
  // one that is not known) have ended, with tgtd or the LUN; and the images of which one is shut out.
  virtual bool IsRegistered(const std::string&) const { return false; }
  virtual std::set<std::string> ListClients(const std::string&) const { return {}; }
  virtual void EndClients(const std::string&, const std::set<std::string>&) const {}
  virtual absl::StatusOr<std::set<std::string>> FindShutOut() const { return std::set<std::string>(); }
  // About once a second. `list_open`: the images that tgtd may have open, of those registered before it.
  using ListOpen = std::function<absl::StatusOr<std::set<std::string>>()>;
  virtual void ForgetClosed(const ListOpen& list_open) const = 0;
  virtual bool may_be_silent_alone() const { return false; }  // one image, while others answer
  // Whether CloneImage works: at once, of one moment, and sharing space. If not, there is CopyImage.
  virtual bool can_clone() const = 0;

  // These three make a new image.
  virtual absl::Status CreateImage(const std::string& path, uint64_t size_bytes,
                                   Provisioning provisioning) const = 0;
  // A clone of `from`, grown to `size_bytes`. It shows `from` as of one moment, even while a node writes to
  // it. With `own_space` nothing stays shared, so that a write to either image needs no new space; that takes
  // as long as a copy. FAILED_PRECONDITION: the store cannot do that.
  virtual absl::Status CloneImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                                  Provisioning provisioning, bool own_space) const = 0;
  // The same by copying what is allocated; nobody may write to `from`. Calls `progress` between chunks with
  // how many bytes are done; it returns false to give up (CANCELLED).
  virtual absl::Status CopyImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                                 Provisioning provisioning,
                                 const std::function<bool(uint64_t)>& progress) const = 0;
  // New images of several others, of one moment; in steps (pool_clones.h). FAILED_PRECONDITION: not here.
  virtual absl::StatusOr<std::unique_ptr<PoolClones>> MakeClones(std::vector<PoolClone> clones) const = 0;
  virtual absl::Status GrowImage(const std::string& path, uint64_t size_bytes,
                                 Provisioning provisioning) const = 0;
  // What was written to the image lasts.
  virtual absl::Status SyncImage(const std::string& path) const = 0;

  // A new image becomes its row's; OK when it is. The row is stored.
  virtual absl::Status KeepImage(const std::string& path) const = 0;
  // Deletes an image that was made and not kept.
  virtual void DropNewImage(const std::string& path) const = 0;
  // Before a deletion, and outside the change of the catalogue, which all others wait for: what the store has
  // to be asked, and may be silent about. UnmarkDeleted undoes it. OK when there is no image.
  virtual absl::Status PrepareDeletion(const std::string&) const { return absl::OkStatus(); }
  // Lasting, before its row goes, and inside that change. OK when there is none.
  virtual absl::Status MarkDeleted(const std::string& path) const = 0;
  virtual absl::Status UnmarkDeleted(const std::string& path) const = 0;
  // Deletes a marked image, whose row is gone.
  virtual absl::Status RemoveMarked(const std::string& path) const = 0;
  // At a start. `known`: the paths that rows point to. Finishes or undoes what a crash cut short, and sets
  // each image aside that is no row's. Never deletes an image but a new or a marked one without a row, of
  // an id that begins with `prefix`.
  virtual absl::Status TidyImages(const std::set<std::string>& known, const std::string& prefix) const = 0;
  // What was set aside, for an operator to look at, by name.
  virtual absl::StatusOr<std::vector<OrphanFile>> ListOrphans() const = 0;
  // For good. NOT_FOUND: there is none of this name.
  virtual absl::Status DeleteOrphan(const std::string& name) const = 0;

  virtual absl::StatusOr<uint64_t> ReadSize(const std::string& path) const = 0;      // as tgtd shows it
  virtual absl::StatusOr<uint64_t> MeasureImage(const std::string& path) const = 0;  // what it takes
  virtual absl::StatusOr<PoolCapacity> MeasureCapacity() const = 0;
  // All of `image` that may be other than zero, a page at a time. It does not change meanwhile.
  virtual absl::StatusOr<BlockPage> FindData(const PoolImage& image, uint64_t offset, size_t limit) const = 0;
  // All of `image` that may be other than in `base`. FAILED_PRECONDITION: the store does not know.
  virtual absl::StatusOr<BlockPage> FindChanges(const PoolImage& base, const PoolImage& image,
                                                uint64_t offset, size_t limit) const = 0;
  // Takes what is missing of the room that is kept for deletions in a full store. Called about once a second.
  virtual void ReserveRoom() const = 0;
};

}  // namespace lunkeeper
