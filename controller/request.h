#pragma once
// From CSI's requests to the domain: checks every field that came from outside and says what it means. Pure
// functions, thread-safe. Failures are INVALID_ARGUMENT unless a comment says otherwise; they name the field,
// its fault and what is allowed. Only controller/ uses these types.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/array.h"

namespace lunkeeper {

using StringMap = google::protobuf::Map<std::string, std::string>;

// A required object id: CSI's 128 bytes at most (node ids 256), no slash, no control characters.
absl::Status CheckId(const char* field, const std::string& value, size_t longest = 128);
// A required name chosen by the orchestrator: at most 128 bytes of Unicode without control characters and
// U+FEFF.
absl::Status CheckName(const std::string& value);
// At most 4 KiB, keys and values together.
absl::Status CheckMap(const char* field, const StringMap& map);

// OK for a capability with all its parts, each known to the specification.
absl::Status CheckCapability(const csi::v1::VolumeCapability& capability);
// The reason why this driver cannot serve a valid capability; empty if it can.
std::string WhyUnsupported(const csi::v1::VolumeCapability& capability);
// At least one, all valid, all supported.
absl::Status CheckCapabilities(
    const google::protobuf::RepeatedPtrField<csi::v1::VolumeCapability>& capabilities);
VolumeMode ModeOf(const csi::v1::VolumeCapability& capability);
// What a volume is for that is made with these.
VolumeUses UsesFor(const google::protobuf::RepeatedPtrField<csi::v1::VolumeCapability>& capabilities);
// The file system that all of these name; empty: none does. INVALID_ARGUMENT: they name two.
absl::StatusOr<std::string> FsTypeIn(
    const google::protobuf::RepeatedPtrField<csi::v1::VolumeCapability>& capabilities);
// Why this volume cannot be used so, because of what it was made for; empty if it can.
std::string WhyNotMadeFor(const VolumeSpec& spec, const csi::v1::VolumeCapability& capability);
// What a grant for this use allows.
Access AccessFor(const csi::v1::VolumeCapability& capability, bool read_only);

struct VolumeParameters {
  Provisioning provisioning = Provisioning::kThin;
  Durability durability = Durability::kCached;
  Digests digests = Digests::kNone;
  std::string fs_type;  // empty: the node's default
  std::string array;    // empty: any
  std::string pool;     // empty: not named; see CheckPool
};
// `none`, `header` or `all`; nothing for another text.
std::optional<Digests> ParseDigests(const std::string& text);
// An unknown key is refused, and the error names the known ones. Keys that Kubernetes adds
// (csi.storage.k8s.io/…) are ignored.
absl::StatusOr<VolumeParameters> ParseParameters(const StringMap& parameters);
// Whether the volume is what these ask for; `change` goes before a parameter of the same name.
bool WasMadeWith(const Volume& volume, const VolumeParameters& parameters, const VolumeChange& change);
// Whether Kubernetes has added the key: the claim's name and namespace (--extra-create-metadata).
bool IsAddedByKubernetes(const std::string& key);
// VolumeSpec::claim out of what Kubernetes has added; empty where it is not there, no name of an object, or
// longer than an array takes.
std::string ClaimIn(const StringMap& parameters);
// A snapshot has none.
absl::Status CheckNoParameters(const char* field, const StringMap& parameters);

// A whole number of MiB, at least as large as required, as the source and as its file system has to be, and
// within the limit. Where nothing is required: the source's size, or 1 GiB. OUT_OF_RANGE: no such size.
absl::StatusOr<uint64_t> ChooseSize(const csi::v1::CapacityRange* range, uint64_t source_bytes,
                                    const std::string& fs_type = "");
// Whether a volume of this size is in `range` (null: any).
bool IsSizeIn(const csi::v1::CapacityRange* range, uint64_t size_bytes);

// The one topology segment of this array, as nodes that reach it report it.
csi::v1::Topology TopologyOf(const std::string& array_name);
bool ReachesArray(const csi::v1::Topology& topology, const std::string& array_name);
// RESOURCE_EXHAUSTED: none of the requisite places reaches this array.
absl::Status CheckAccessibility(const csi::v1::TopologyRequirement& requirement,
                                const std::string& array_name);

// INVALID_ARGUMENT for a negative max_entries.
absl::StatusOr<size_t> ParseMaxEntries(int32_t max_entries);

}  // namespace lunkeeper
