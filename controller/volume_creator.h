#pragma once
// Creates volumes so that a repeated request finds the volume of the first. Thread-safe; for one name, one
// call at a time (the service's lock sees to that). Keeps nothing. The arrays outlive it. Failure: as CSI's
// table for CreateVolume says; the message names the volume or the parameter and says what to do.

#include <string>

#include "absl/status/statusor.h"
#include "controller/request.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

// The volume that a request asks for, all but its size, which depends on the source.
absl::StatusOr<VolumeSpec> ParseVolumeSpec(const csi::v1::CreateVolumeRequest& request,
                                           const VolumeParameters& parameters);

class VolumeCreator {
 public:
  // `volumes` are those of all `arrays`.
  VolumeCreator(Arrays& arrays, VolumeStore& volumes) : arrays_(arrays), volumes_(volumes) {}

  // The array for the volume: the one that has a volume of this name, for an earlier call may have been meant
  // for another array than this one; else that of its source; else as ChooseArray says. ALREADY_EXISTS: the
  // array that has the name is none that this request allows.
  absl::StatusOr<NamedArray> ChoosePlace(const csi::v1::CreateVolumeRequest& request, const VolumeSpec& spec,
                                         const VolumeParameters& parameters);

  // Creates the volume in `store`, in a size that `range` (null: any) allows; or returns the volume that an
  // earlier call made for the same request. ALREADY_EXISTS: there is another volume of that name.
  // A volume that was there gets the `change`, if it has not had it; so does one on an array whose agent is
  // too old to make volumes with limits or digests, which is an error then.
  absl::StatusOr<Volume> CreateOnce(VolumeStore& store, VolumeSpec spec, VolumeChange change,
                                    const csi::v1::CapacityRange* range);

 private:
  absl::StatusOr<NamedArray> ChooseNewPlace(const csi::v1::CreateVolumeRequest& request,
                                            const VolumeSpec& spec, const std::string& asked);
  absl::StatusOr<uint64_t> SourceBytes(const VolumeSpec& spec);

  Arrays& arrays_;
  VolumeStore& volumes_;
};

}  // namespace lunkeeper
