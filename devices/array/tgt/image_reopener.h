#pragma once
// Has tgtd open images anew whose clients somebody else has shut out of the store, as `rbd lock rm` does with
// the client that has the image's lock: all that tgtd asks through such a client fails, for good. Nodes that
// know several portals do not believe the first errors (devices/iscsi/lun.h), and so wait meanwhile.
//
// A gateway does this only while it has the array. The next one changes the array's record before it shuts
// anybody out, and here the record is asked after the shut out clients were found: so where the next one has
// shut them out, nothing is opened. Where it takes the array after that, tgtd has an image open by a client
// that can no longer be registered, and so lets no node in (LunBacking).
//
// What tgtd had sent by the old client does not arrive after what it sends by the new one: that one knows
// from its beginning who is shut out, and so do the OSDs that it asks.
//
// An image with several grants is opened anew for each of them, since nobody knows whose client is whose.
// Owns a thread, which looks from StartLooking to StopLooking; each of them is called by one thread at a
// time. What it is made of outlives it.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/periodic.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/volume_gates.h"

namespace lunkeeper {

class ImageReopener {
 public:
  using OfGrant = std::function<absl::Status(const GrantRow&)>;
  // `check`: whether its tgtd answers. `reopen`: closes the image of a grant's LUN, and opens it anew; called
  // inside the volume's gate.
  ImageReopener(Catalogue& catalogue, const ImageStore& images, VolumeGates& gates, OfGrant check,
                OfGrant reopen)
      : catalogue_(catalogue),
        images_(images),
        gates_(gates),
        check_(std::move(check)),
        reopen_(std::move(reopen)) {}

  void StartLooking();
  void StopLooking();  // for good

 private:
  void ReopenShutOut();
  absl::Status ReopenImage(const std::string& path);

  Catalogue& catalogue_;
  const ImageStore& images_;
  VolumeGates& gates_;
  const OfGrant check_, reopen_;
  std::atomic<bool> stopping_ = false;
  std::optional<Periodic> looks_;  // last: its thread uses the others
};

}  // namespace lunkeeper
