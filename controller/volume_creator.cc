// Idempotency by name. The array knows a volume by its name as well, and answers ALREADY_EXISTS only for a
// request that differs from the first. It compares sizes exactly, though, while CSI's range leaves a choice:
// the volume may have been expanded since, or this request may have another range that fits as well. So the
// last word on ALREADY_EXISTS is here.
#include "controller/volume_creator.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "controller/placement.h"
#include "devices/array/name_search.h"

namespace lunkeeper {
namespace {

// Reads the whole list, since arrays find volumes by id alone; repeated creations are rare.
absl::StatusOr<Volume> FindMadeBefore(VolumeStore& store, VolumeSpec spec, const VolumeChange& change,
                                      const csi::v1::CapacityRange* range) {
  std::string token;
  do {
    ASSIGN_OR_RETURN(const Page<Volume> page, store.ListVolumes(token, 0));
    for (const Volume& volume : page.items) {
      if (volume.spec.name != spec.name) continue;
      if (change.durability) spec.durability = volume.spec.durability;  // that can be modified
      spec.digests = volume.spec.digests;                               // and that is, by CreateOnce
      if (IsMadeAs(volume.spec, spec) && IsSizeIn(range, volume.spec.size_bytes)) return volume;
      return absl::AlreadyExistsError(absl::StrCat(
          "create volume ", spec.name, ": volume ", volume.id.value(), " has that name and ",
          volume.spec.size_bytes,
          " bytes, but not the size, capabilities, parameters or source asked for: use another name or "
          "delete it"));
    }
    // A page at a time; the list may change in between, which the array's tokens allow for.
    token = page.next_token;
  } while (!token.empty());
  return absl::AbortedError(absl::StrCat("create volume ", spec.name, ": it is being deleted: try again"));
}

}  // namespace

absl::StatusOr<VolumeSpec> ParseVolumeSpec(const csi::v1::CreateVolumeRequest& request,
                                           const VolumeParameters& parameters) {
  VolumeSpec spec;
  spec.name = request.name();
  spec.provisioning = parameters.provisioning;
  spec.durability = parameters.durability;
  spec.digests = parameters.digests;
  spec.uses = UsesFor(request.volume_capabilities());
  spec.claim = ClaimIn(request.parameters());
  ASSIGN_OR_RETURN(spec.fs_type, FsTypeIn(request.volume_capabilities()));
  // As on the node: what the capability asks for goes before the class's parameter.
  if (spec.fs_type.empty()) spec.fs_type = parameters.fs_type;
  if (!request.has_volume_content_source()) return spec;
  const csi::v1::VolumeContentSource& source = request.volume_content_source();
  if (source.has_snapshot()) {
    RETURN_IF_ERROR(CheckId("volume_content_source.snapshot_id", source.snapshot().snapshot_id()));
    spec.source_snapshot = SnapshotId(source.snapshot().snapshot_id());
  } else if (source.has_volume()) {
    RETURN_IF_ERROR(CheckId("volume_content_source.volume_id", source.volume().volume_id()));
    spec.source_volume = VolumeId(source.volume().volume_id());
  } else {
    return absl::InvalidArgumentError("volume_content_source: want a snapshot or a volume");
  }
  return spec;
}

absl::StatusOr<NamedArray> VolumeCreator::ChoosePlace(const csi::v1::CreateVolumeRequest& request,
                                                      const VolumeSpec& spec,
                                                      const VolumeParameters& parameters) {
  ASSIGN_OR_RETURN(const NamedArray place, ChooseNewPlace(request, spec, parameters.array));
  ASSIGN_OR_RETURN(const std::string there, FindNamed(arrays_, place.name, NamedKind::kVolume, spec.name));
  const std::string array = ArrayNameIn(there);
  if (there.empty() || array == place.name) return place;
  if (parameters.array.empty()) {
    absl::StatusOr<NamedArray> earlier = ChooseNewPlace(request, spec, array);
    if (earlier.ok()) return earlier;
  }
  return IsElsewhere(NamedKind::kVolume, spec.name, there, place.name);
}

// A clone shares its source's blocks, or is copied from them, so it begins on the same array. `asked`: the
// one that it has to be; empty: any.
absl::StatusOr<NamedArray> VolumeCreator::ChooseNewPlace(const csi::v1::CreateVolumeRequest& request,
                                                         const VolumeSpec& spec, const std::string& asked) {
  RETURN_IF_ERROR(arrays_.CheckKnown());
  // Not INVALID_ARGUMENT: the provisioner tries that again only after minutes, and the array may be added
  // back.
  if (arrays_.IsRemoved(asked))
    return absl::UnavailableError(absl::StrCat(
        "array ", asked, " was removed by an operator: `lunkeeper add-array ", asked, "` brings it back"));
  const std::string& source =
      spec.source_volume.empty() ? spec.source_snapshot.value() : spec.source_volume.value();
  if (source.empty()) return ChooseArray(arrays_.ListArrays(), asked, request.accessibility_requirements());
  // First, so that a source whose array was removed gets an error that says so.
  RETURN_IF_ERROR(FindArrayOf(arrays_, source).status());
  const std::string name = ArrayNameIn(source);
  if (!asked.empty() && asked != name) {
    return absl::InvalidArgumentError(absl::StrCat("parameter array: ", source, " is on array ", name,
                                                   ", and cannot be copied to ", asked));
  }
  return ChooseArray(arrays_.ListArrays(), name, request.accessibility_requirements());
}

absl::StatusOr<uint64_t> VolumeCreator::SourceBytes(const VolumeSpec& spec) {
  if (!spec.source_volume.empty()) {
    ASSIGN_OR_RETURN(const Volume source, volumes_.GetVolume(spec.source_volume));
    return source.spec.size_bytes;
  }
  if (spec.source_snapshot.empty()) return 0;
  ASSIGN_OR_RETURN(const Snapshot source, volumes_.GetSnapshot(spec.source_snapshot));
  // A copy in progress ends by itself, and orchestrators repeat the call: UNAVAILABLE, not a failure for
  // good.
  if (source.ready) return source.size_bytes;
  return absl::UnavailableError(absl::StrCat("create volume ", spec.name, ": snapshot ", source.id.value(),
                                             " is still being copied: try again"));
}

absl::StatusOr<Volume> VolumeCreator::CreateOnce(VolumeStore& store, VolumeSpec spec, VolumeChange change,
                                                 const csi::v1::CapacityRange* range) {
  ASSIGN_OR_RETURN(const uint64_t source_bytes, SourceBytes(spec));
  // A block device has no file system, whatever its class names.
  const bool mounted = spec.uses.Allow(Access::kReadOnly, VolumeMode::kFilesystem);
  ASSIGN_OR_RETURN(spec.size_bytes, ChooseSize(range, source_bytes, mounted ? spec.fs_type : ""));
  spec = WithChange(spec, change);
  absl::StatusOr<Volume> made = store.CreateVolume(spec);
  // Made by an earlier call with the same request, too, it may have grown beyond this one's limit since.
  const bool beyond = made.ok() && !IsSizeIn(range, made->spec.size_bytes);
  if (beyond || absl::IsAlreadyExists(made.status())) made = FindMadeBefore(store, spec, change, range);
  if (!made.ok()) return made;
  // An agent of an older version has made it without: it says so now, or has been upgraded since.
  if (made->spec.digests < spec.digests) change.digests = spec.digests;
  if (WithChange(made->spec, change) == made->spec) return made;
  const absl::StatusOr<Volume> changed = store.ModifyVolume(made->id, change);
  if (!absl::IsUnimplemented(changed.status())) return changed;
  // By an agent of an older version. The volume is there, and what orchestrators take for a failure for good
  // would let them forget it.
  return absl::UnavailableError(changed.status().message());
}

}  // namespace lunkeeper
