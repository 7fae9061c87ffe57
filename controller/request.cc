// The limits are those of the CSI specification ("Size Limits"): 128 bytes for most strings, 4 KiB for a map.
// Fields of ours are stricter where an array or a file name needs it; an id with a slash, for one, could
// never be ours. What a parameter may be is listed in its error, since a StorageClass is written by hand and
// read by nobody until the first volume fails.
#include "controller/request.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/arrays.h"

namespace lunkeeper {
namespace {

using csi::v1::VolumeCapability;
using Mode = csi::v1::VolumeCapability::AccessMode;

constexpr size_t kLongestString = 128;
constexpr size_t kLongestMap = 4096;
// An agent refuses a longer text (devices/array/remote/request_texts.cc).
constexpr size_t kLongestClaim = 256;
// What a claim without a size gets; Kubernetes never sends one.
constexpr uint64_t kDefaultBytes = uint64_t{1} << 30;
// mkfs.xfs makes no smaller ones: such a volume would never be mounted.
constexpr uint64_t kLeastXfsBytes = 300 * kMiB;
constexpr char kTopologyPrefix[] = "array.lunkeeper.io/";
constexpr char kReachable[] = "reachable";

// CSI bans most control characters in names and ids. Line ends and tabs, which it lets pass, would break log
// lines.
bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }

// Also the two-byte controls U+0080 to U+009F, and the byte order mark: CSI forbids them in names.
bool HasForbiddenText(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), IsControl) || absl::StrContains(text, "\xEF\xBB\xBF"))
    return true;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '\xC2' && static_cast<unsigned char>(text[i + 1]) < 0xA0) return true;
  }
  return false;
}

absl::Status InvalidField(const std::string& field, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

absl::Status CheckLength(const char* field, const std::string& value, size_t longest) {
  if (value.empty()) return InvalidField(field, "required, but empty");
  if (value.size() > longest)
    return InvalidField(field, absl::StrCat(value.size(), " bytes; at most ", longest));
  return absl::OkStatus();
}

absl::Status CheckMount(const VolumeCapability::MountVolume& mount) {
  size_t bytes = 0;
  for (const std::string& flag : mount.mount_flags()) {
    bytes += flag.size();
    if (HasForbiddenText(flag)) return InvalidField("mount_flags", "a flag contains control characters");
  }
  if (bytes > kLongestMap)
    return InvalidField("mount_flags", absl::StrCat("more than ", kLongestMap, " bytes"));
  if (mount.fs_type().size() > kLongestString) return InvalidField("fs_type", "longer than 128 bytes");
  return absl::OkStatus();
}

bool IsMultiNodeWriter(Mode::Mode mode) {
  return mode == Mode::MULTI_NODE_SINGLE_WRITER || mode == Mode::MULTI_NODE_MULTI_WRITER;
}

bool IsFileSystem(const std::string& name) { return name == "ext4" || name == "xfs"; }

absl::Status SetParameter(const std::string& key, const std::string& value, VolumeParameters* out) {
  if (key == "provisioning") {
    if (value != "thin" && value != "thick")
      return InvalidField("parameter provisioning", "want thin or thick");
    out->provisioning = value == "thick" ? Provisioning::kThick : Provisioning::kThin;
  } else if (key == "durability") {
    if (value != "cached" && value != "sync")
      return InvalidField("parameter durability", "want cached or sync");
    out->durability = value == "sync" ? Durability::kSync : Durability::kCached;
  } else if (key == "digests") {
    const std::optional<Digests> digests = ParseDigests(value);
    if (!digests) return InvalidField("parameter digests", "want none, header or all");
    out->digests = *digests;
  } else if (key == "fsType") {
    if (!IsFileSystem(value)) return InvalidField("parameter fsType", "want ext4 or xfs");
    out->fs_type = value;
  } else if (key == "array") {
    if (value.empty()) return InvalidField("parameter array", "empty: name an array, or leave it out");
    out->array = value;
  } else if (key == "pool") {
    if (value.empty()) return InvalidField("parameter pool", "empty: leave it out");
    out->pool = value;
  } else {
    return InvalidField(
        absl::StrCat("parameter ", key.substr(0, kLongestString)),
        "unknown; there are array, provisioning (thin, thick), durability (cached, sync), digests (none, "
        "header, all) and fsType (ext4, xfs)");
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const csi::v1::CapacityRange& range) {
  if (range.required_bytes() < 0) return InvalidField("capacity_range.required_bytes", "negative");
  if (range.limit_bytes() < 0) return InvalidField("capacity_range.limit_bytes", "negative");
  if (range.required_bytes() == 0 && range.limit_bytes() == 0) {
    return InvalidField("capacity_range", "give required_bytes, limit_bytes, or both");
  }
  if (range.limit_bytes() != 0 && range.limit_bytes() < range.required_bytes()) {
    return InvalidField("capacity_range", absl::StrFormat("limit_bytes (%d) is less than required_bytes (%d)",
                                                          range.limit_bytes(), range.required_bytes()));
  }
  return absl::OkStatus();
}

// Volumes are whole MiB, a multiple of every sector size and of the unit in which file systems allocate.
uint64_t RoundUp(uint64_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

}  // namespace

absl::Status CheckId(const char* field, const std::string& value, size_t longest) {
  RETURN_IF_ERROR(CheckLength(field, value, longest));
  if (HasForbiddenText(value) || absl::StrContains(value, '/')) {
    return InvalidField(field, "contains a slash or control characters, which no id of ours does");
  }
  return absl::OkStatus();
}

absl::Status CheckName(const std::string& value) {
  RETURN_IF_ERROR(CheckLength("name", value, kLongestString));
  if (HasForbiddenText(value)) return InvalidField("name", "contains control characters");
  return absl::OkStatus();
}

absl::Status CheckMap(const char* field, const StringMap& map) {
  size_t bytes = 0;
  for (const auto& [key, value] : map) bytes += key.size() + value.size();
  if (bytes > kLongestMap) return InvalidField(field, absl::StrCat(bytes, " bytes; at most ", kLongestMap));
  return absl::OkStatus();
}

absl::Status CheckCapability(const VolumeCapability& capability) {
  // proto3 has no required fields, so absence shows only in the oneof's case.
  if (capability.access_type_case() == VolumeCapability::ACCESS_TYPE_NOT_SET) {
    return InvalidField("volume_capability.access_type", "required: mount or block");
  }
  if (!capability.has_access_mode() || capability.access_mode().mode() == Mode::UNKNOWN ||
      !Mode::Mode_IsValid(capability.access_mode().mode())) {
    return InvalidField("volume_capability.access_mode", "required: a mode of the specification");
  }
  return capability.has_mount() ? CheckMount(capability.mount()) : absl::OkStatus();
}

std::string WhyUnsupported(const VolumeCapability& capability) {
  if (!capability.has_mount()) return "";
  const VolumeCapability::MountVolume& mount = capability.mount();
  if (!mount.fs_type().empty() && !IsFileSystem(mount.fs_type())) {
    return absl::StrCat("fs_type ", mount.fs_type(), " is not supported: want ext4 or xfs");
  }
  if (!mount.volume_mount_group().empty()) return "volume_mount_group is not supported";
  if (IsMultiNodeWriter(capability.access_mode().mode())) {
    return "a file system cannot be written by several nodes: use a block volume";
  }
  return "";
}

absl::Status CheckCapabilities(const google::protobuf::RepeatedPtrField<VolumeCapability>& capabilities) {
  if (capabilities.empty()) return InvalidField("volume_capabilities", "required, but empty");
  for (const VolumeCapability& capability : capabilities) {
    RETURN_IF_ERROR(CheckCapability(capability));
    if (const std::string why = WhyUnsupported(capability); !why.empty())
      return InvalidField("volume_capabilities", why);
  }
  return absl::OkStatus();
}

Access AccessFor(const VolumeCapability& capability, bool read_only) {
  const Mode::Mode mode = capability.access_mode().mode();
  // A reader stays one even if the request is writable: the grant then cannot be used to write.
  const bool reader = mode == Mode::SINGLE_NODE_READER_ONLY || mode == Mode::MULTI_NODE_READER_ONLY;
  if (read_only || reader) return Access::kReadOnly;
  return IsMultiNodeWriter(mode) ? Access::kSharedWrite : Access::kExclusive;
}

VolumeMode ModeOf(const VolumeCapability& capability) {
  return capability.has_block() ? VolumeMode::kBlock : VolumeMode::kFilesystem;
}

VolumeUses UsesFor(const google::protobuf::RepeatedPtrField<VolumeCapability>& capabilities) {
  VolumeUses uses;
  for (const VolumeCapability& capability : capabilities)
    uses.Add(AccessFor(capability, false), ModeOf(capability));
  return uses;
}

absl::StatusOr<std::string> FsTypeIn(
    const google::protobuf::RepeatedPtrField<VolumeCapability>& capabilities) {
  std::string named;
  for (const VolumeCapability& capability : capabilities) {
    const std::string& name = capability.mount().fs_type();
    if (!name.empty() && !named.empty() && name != named)
      return InvalidField("volume_capabilities", "they name two file systems, and a volume has one");
    if (!name.empty()) named = name;
  }
  return named;
}

std::string WhyNotMadeFor(const VolumeSpec& spec, const VolumeCapability& capability) {
  const Mode::Mode mode = capability.access_mode().mode();
  const bool too_many =
      (mode == Mode::MULTI_NODE_READER_ONLY || IsMultiNodeWriter(mode)) && !spec.uses.ForManyNodes();
  if (too_many || !spec.uses.Allow(AccessFor(capability, false), ModeOf(capability)))
    return absl::StrCat("the volume was made for ", spec.uses.ToText());
  const std::string& name = capability.mount().fs_type();
  if (name.empty() || spec.fs_type.empty() || name == spec.fs_type) return "";
  return absl::StrCat("the volume was made for ", spec.fs_type);
}

std::optional<Digests> ParseDigests(const std::string& text) {
  for (const Digests digests : {Digests::kNone, Digests::kHeader, Digests::kAll})
    if (text == ToString(digests)) return digests;
  return std::nullopt;
}

absl::StatusOr<VolumeParameters> ParseParameters(const StringMap& parameters) {
  RETURN_IF_ERROR(CheckMap("parameters", parameters));
  VolumeParameters parsed;
  for (const auto& [key, value] : parameters) {
    // The rest is ours: a typing error in a StorageClass must not be ignored, or a volume would silently be
    // of another kind than its administrator wanted.
    if (!IsAddedByKubernetes(key)) RETURN_IF_ERROR(SetParameter(key, value, &parsed));
  }
  return parsed;
}

bool WasMadeWith(const Volume& volume, const VolumeParameters& parameters, const VolumeChange& change) {
  const VolumeSpec& spec = volume.spec;
  if (!parameters.array.empty() && parameters.array != ArrayNameIn(volume.id.value())) return false;
  const bool any_type = parameters.fs_type.empty() || spec.fs_type.empty();
  // It may have been modified; but a cached volume is wrong for who wants it durable.
  const bool durable =
      change.durability ? *change.durability == spec.durability : spec.durability >= parameters.durability;
  const bool checked = change.digests ? *change.digests == spec.digests : spec.digests >= parameters.digests;
  return parameters.provisioning == spec.provisioning && durable && checked &&
         (any_type || parameters.fs_type == spec.fs_type);
}

bool IsAddedByKubernetes(const std::string& key) { return absl::StartsWith(key, "csi.storage.k8s.io/"); }

std::string ClaimIn(const StringMap& parameters) {
  // Never a reason to refuse a volume: it is for people alone.
  const auto part = [&](const char* key) -> std::string {
    const auto found = parameters.find(absl::StrCat("csi.storage.k8s.io/pvc/", key));
    return found != parameters.end() && CheckId(key, found->second, 253).ok() ? found->second : "";
  };
  const std::string space = part("namespace"), name = part("name");
  const bool fits = space.size() + 1 + name.size() <= kLongestClaim;
  return space.empty() || name.empty() || !fits ? "" : absl::StrCat(space, "/", name);
}

absl::Status CheckNoParameters(const char* field, const StringMap& parameters) {
  RETURN_IF_ERROR(CheckMap(field, parameters));
  for (const auto& [key, value] : parameters) {
    if (IsAddedByKubernetes(key)) continue;
    return InvalidField(field, absl::StrCat(key.substr(0, kLongestString), " is unknown; there are none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ChooseSize(const csi::v1::CapacityRange* range, uint64_t source_bytes,
                                    const std::string& fs_type) {
  const uint64_t least = fs_type == "xfs" ? kLeastXfsBytes : 0;
  if (range == nullptr) return std::max(least, source_bytes != 0 ? source_bytes : kDefaultBytes);
  RETURN_IF_ERROR(CheckRange(*range));
  const uint64_t limit = static_cast<uint64_t>(range->limit_bytes());
  // The smallest size that fits: CSI asks for required_bytes at least, and each byte more is paid for.
  uint64_t size = RoundUp(std::max(static_cast<uint64_t>(range->required_bytes()), source_bytes));
  if (size == 0) size = std::min(kDefaultBytes, limit / kMiB * kMiB);
  size = std::max(size, least);
  if (size != 0 && (limit == 0 || size <= limit)) return size;
  return absl::OutOfRangeError(
      absl::StrFormat("capacity_range: volumes are whole MiB, never smaller than what they begin with (%d "
                      "bytes), and for XFS 300 MiB at least; there is no size from %d to %d bytes",
                      source_bytes, range->required_bytes(), range->limit_bytes()));
}

bool IsSizeIn(const csi::v1::CapacityRange* range, uint64_t size_bytes) {
  if (range == nullptr) return true;
  return size_bytes >= static_cast<uint64_t>(range->required_bytes()) &&
         (range->limit_bytes() == 0 || size_bytes <= static_cast<uint64_t>(range->limit_bytes()));
}

csi::v1::Topology TopologyOf(const std::string& array_name) {
  csi::v1::Topology topology;
  (*topology.mutable_segments())[kTopologyPrefix + array_name] = kReachable;
  return topology;
}

bool ReachesArray(const csi::v1::Topology& topology, const std::string& array_name) {
  const auto segment = topology.segments().find(kTopologyPrefix + array_name);
  return segment != topology.segments().end() && segment->second == kReachable;
}

absl::Status CheckAccessibility(const csi::v1::TopologyRequirement& requirement,
                                const std::string& array_name) {
  // Both lists are checked for their size, though only the first can refuse anything.
  for (const auto* places : {&requirement.requisite(), &requirement.preferred()}) {
    for (const csi::v1::Topology& place : *places) RETURN_IF_ERROR(CheckMap("topology", place.segments()));
  }
  const auto& requisite = requirement.requisite();
  // Without requisite places every array will do; what is only preferred may be passed over.
  if (requisite.empty()) return absl::OkStatus();
  const bool reached = std::any_of(requisite.begin(), requisite.end(), [&](const csi::v1::Topology& place) {
    return ReachesArray(place, array_name);
  });
  if (reached) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("accessibility_requirements: none of the places asked for has ", kTopologyPrefix,
                   array_name, "=", kReachable));
}

absl::StatusOr<size_t> ParseMaxEntries(int32_t max_entries) {
  if (max_entries < 0) return InvalidField("max_entries", "negative");
  return static_cast<size_t>(max_entries);
}

}  // namespace lunkeeper
