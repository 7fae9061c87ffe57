// The orchestrator carries this map from ControllerPublishVolume to NodeStageVolume and may store it in
// between. It crosses versions of this program and other people's hands, so reading checks everything:
// presence, length, printable characters, numbers in range, known words. What passes is fit for a login and
// for log lines.
#include "devices/array/publish_context.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/host_port.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Keys of the map. They are part of the interface between controllers and nodes of different versions.
constexpr char kVolume[] = "volume";
constexpr char kNode[] = "node";
constexpr char kAccess[] = "access";
constexpr char kGeneration[] = "generation";
constexpr char kPortal[] = "portal";
// With commas; not there where there are none.
constexpr char kOtherPortals[] = "otherPortals";
constexpr char kPeerPortals[] = "peerPortals";
constexpr char kTarget[] = "target";
constexpr char kInitiator[] = "initiator";
constexpr char kLun[] = "lun";
constexpr char kChapUser[] = "chapUser";
constexpr char kChapSecret[] = "chapSecret";
// Not there in the context of an older controller, or of an older array agent's grant.
constexpr char kTargetChapUser[] = "targetChapUser";
constexpr char kTargetChapSecret[] = "targetChapSecret";
constexpr char kSerial[] = "serial";
constexpr char kSizeBytes[] = "sizeBytes";
constexpr char kDurability[] = "durability";
constexpr char kDigests[] = "digests";  // not there where there are none
// Not there where the volume never had limits.
constexpr char kMaxIops[] = "maxIops";
constexpr char kMaxBandwidth[] = "maxBandwidth";
constexpr char kLimitsVersion[] = "limitsVersion";

// An iSCSI name has at most 223 bytes (RFC 7143, section 4.2.7.1).
constexpr size_t kLongestValue = 255;
// Flat space addressing has 14 bits (SAM-5, section 4.7.3).
constexpr uint64_t kLargestLun = 16383;

constexpr std::pair<Access, const char*> kAccessNames[] = {{Access::kExclusive, "exclusive"},
                                                           {Access::kReadOnly, "read-only"},
                                                           {Access::kSharedWrite, "shared-write"}};
constexpr std::pair<Durability, const char*> kDurabilityNames[] = {{Durability::kCached, "cached"},
                                                                   {Durability::kSync, "sync"}};

constexpr std::pair<Digests, const char*> kDigestsNames[] = {{Digests::kHeader, "header"},
                                                             {Digests::kAll, "all"}};

// Errors never quote the value: it may be the CHAP secret.
absl::Status WrongValue(const char* key, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "publish_context: \"", key, "\" ", what, "; pass on what ControllerPublishVolume returned, unchanged"));
}

absl::StatusOr<std::string> ReadText(const PublishContext& context, const char* key) {
  const auto it = context.find(key);
  if (it == context.end() || it->second.empty()) return WrongValue(key, "is missing");
  if (it->second.size() > kLongestValue) return WrongValue(key, "is too long");
  const bool printable =
      std::all_of(it->second.begin(), it->second.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!printable) return WrongValue(key, "has characters that are not printable");
  return it->second;
}

absl::StatusOr<uint64_t> ReadNumber(const PublishContext& context, const char* key, uint64_t least,
                                    uint64_t most) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(context, key));
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most)
    return WrongValue(key, "is not a number in range");
  return value;
}

absl::StatusOr<Iqn> IscsiName(const PublishContext& context, const char* key) {
  ASSIGN_OR_RETURN(std::string text, ReadText(context, key));
  if (text.rfind("iqn.", 0) != 0 || text.size() > 223)
    return WrongValue(key, "is not an iSCSI qualified name");
  return Iqn(std::move(text));
}

absl::Status CheckPortal(const char* key, std::string_view text) {
  const auto portal = ParseHostPort(std::string(text));
  if (!portal || portal->host.empty() || portal->port == 0) return WrongValue(key, "is not ADDRESS:PORT");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPortal(const PublishContext& context) {
  ASSIGN_OR_RETURN(std::string text, ReadText(context, kPortal));
  RETURN_IF_ERROR(CheckPortal(kPortal, text));
  return text;
}

absl::StatusOr<std::vector<std::string>> ReadPortals(const PublishContext& context, const char* key) {
  if (!context.contains(key)) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const std::string text, ReadText(context, key));
  const std::vector<std::string> portals = absl::StrSplit(text, ',');
  for (const std::string& portal : portals) RETURN_IF_ERROR(CheckPortal(key, portal));
  return portals;
}

// As many as a value has room for.
std::string JoinPortals(const std::vector<std::string>& portals) {
  std::string text;
  for (const std::string& portal : portals) {
    if (text.size() + 1 + portal.size() > kLongestValue) break;
    absl::StrAppend(&text, text.empty() ? "" : ",", portal);
  }
  return text;
}

template <class Enum, size_t N>
absl::StatusOr<Enum> OneOf(const PublishContext& context, const char* key,
                           const std::pair<Enum, const char*> (&names)[N]) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(context, key));
  for (const auto& [value, name] : names) {
    if (text == name) return value;
  }
  return WrongValue(key, "has a value that is not known");
}

template <class Enum, size_t N>
const char* NameOf(Enum wanted, const std::pair<Enum, const char*> (&names)[N]) {
  for (const auto& [value, name] : names) {
    if (value == wanted) return name;
  }
  return "";
}

absl::StatusOr<VolumeLimits> ReadLimits(const PublishContext& context) {
  VolumeLimits limits;
  if (!context.contains(kLimitsVersion)) return limits;
  ASSIGN_OR_RETURN(limits.version, ReadNumber(context, kLimitsVersion, 1, UINT64_MAX));
  ASSIGN_OR_RETURN(limits.iops, ReadNumber(context, kMaxIops, 0, UINT64_MAX));
  ASSIGN_OR_RETURN(limits.bytes_per_second, ReadNumber(context, kMaxBandwidth, 0, UINT64_MAX));
  return limits;
}

absl::StatusOr<Connection> ConnectionFrom(const PublishContext& context) {
  Connection connection;
  ASSIGN_OR_RETURN(connection.portal, ReadPortal(context));
  ASSIGN_OR_RETURN(connection.other_portals, ReadPortals(context, kOtherPortals));
  ASSIGN_OR_RETURN(connection.peer_portals, ReadPortals(context, kPeerPortals));
  ASSIGN_OR_RETURN(connection.target, IscsiName(context, kTarget));
  ASSIGN_OR_RETURN(connection.initiator, IscsiName(context, kInitiator));
  ASSIGN_OR_RETURN(connection.lun, ReadNumber(context, kLun, 0, kLargestLun));
  ASSIGN_OR_RETURN(connection.chap.user, ReadText(context, kChapUser));
  ASSIGN_OR_RETURN(connection.chap.secret, ReadText(context, kChapSecret));
  if (context.contains(kDigests)) {
    ASSIGN_OR_RETURN(connection.digests, OneOf(context, kDigests, kDigestsNames));
  }
  // One-way CHAP then, as before: a node refuses no grant that was made before an upgrade.
  if (!context.contains(kTargetChapUser)) return connection;
  ASSIGN_OR_RETURN(connection.target_chap.user, ReadText(context, kTargetChapUser));
  ASSIGN_OR_RETURN(connection.target_chap.secret, ReadText(context, kTargetChapSecret));
  return connection;
}

}  // namespace

PublishContext ToPublishContext(const Grant& grant) {
  const Connection& connection = grant.connection;
  PublishContext context = {{kVolume, grant.volume.value()},
                            {kNode, grant.node.value()},
                            {kAccess, NameOf(grant.access, kAccessNames)},
                            {kGeneration, absl::StrCat(grant.generation)},
                            {kPortal, connection.portal},
                            {kTarget, connection.target.value()},
                            {kInitiator, connection.initiator.value()},
                            {kLun, absl::StrCat(connection.lun)},
                            {kChapUser, connection.chap.user},
                            {kChapSecret, connection.chap.secret},
                            {kSerial, grant.serial},
                            {kSizeBytes, absl::StrCat(grant.size_bytes)},
                            {kDurability, NameOf(grant.durability, kDurabilityNames)}};
  if (const std::string others = JoinPortals(connection.other_portals); !others.empty())
    context[kOtherPortals] = others;
  if (const std::string peers = JoinPortals(connection.peer_portals); !peers.empty())
    context[kPeerPortals] = peers;
  if (!connection.target_chap.user.empty()) {
    context[kTargetChapUser] = connection.target_chap.user;
    context[kTargetChapSecret] = connection.target_chap.secret;
  }
  if (connection.digests != Digests::kNone) context[kDigests] = NameOf(connection.digests, kDigestsNames);
  if (grant.limits.version != 0) {
    context[kMaxIops] = absl::StrCat(grant.limits.iops);
    context[kMaxBandwidth] = absl::StrCat(grant.limits.bytes_per_second);
    context[kLimitsVersion] = absl::StrCat(grant.limits.version);
  }
  return context;
}

absl::StatusOr<Grant> FromPublishContext(const VolumeId& volume, const PublishContext& context) {
  Grant grant;
  grant.volume = volume;
  grant.owner = GrantOwner::kOrchestrator;
  ASSIGN_OR_RETURN(const std::string granted, ReadText(context, kVolume));
  // A mix-up of two volumes' contexts would mount the wrong data, with a login that succeeds.
  if (granted != volume.value()) return WrongValue(kVolume, "is another volume");
  ASSIGN_OR_RETURN(std::string node, ReadText(context, kNode));
  grant.node = NodeId(std::move(node));
  ASSIGN_OR_RETURN(grant.access, OneOf(context, kAccess, kAccessNames));
  ASSIGN_OR_RETURN(grant.generation, ReadNumber(context, kGeneration, 1, UINT64_MAX));
  ASSIGN_OR_RETURN(grant.connection, ConnectionFrom(context));
  ASSIGN_OR_RETURN(grant.serial, ReadText(context, kSerial));
  ASSIGN_OR_RETURN(grant.size_bytes, ReadNumber(context, kSizeBytes, 1, INT64_MAX));
  ASSIGN_OR_RETURN(grant.durability, OneOf(context, kDurability, kDurabilityNames));
  ASSIGN_OR_RETURN(grant.limits, ReadLimits(context));
  return grant;
}

}  // namespace lunkeeper
