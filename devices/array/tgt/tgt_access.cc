// The array's grants, fences and terms.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "devices/array/tgt/tgt_host.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kGrantGateTimeout = absl::Seconds(10);
// How often one who waits in line looks whether his node has been fenced meanwhile.
constexpr absl::Duration kLookInterval = absl::Seconds(1);

absl::Status CheckNode(const NodeId& node) {
  const std::string& name = node.value();
  const bool fine =
      !name.empty() && name.size() <= 190 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_:ABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
          std::string::npos;
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "node '", name, "': a node's id has 1 to 190 letters, digits, dots, dashes, underscores or colons"));
}

}  // namespace

absl::StatusOr<Grant> TgtArray::AcquireGrant(const GrantRequest& request, absl::Duration wait) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(CheckNode(request.node));
  RETURN_IF_ERROR(GetVolume(request.volume).status());
  RETURN_IF_ERROR(host_.daemon->WaitReady(absl::Now() + kReadyTimeout));
  ASSIGN_OR_RETURN(const auto own, host_.catalogue->FindGrant(request.volume, request.node));
  // Who holds it already does not wait behind those who wait for him to let go.
  if (own.has_value() && !own->releasing) {
    const auto pass = host_.gates.Enter(request.volume, absl::Now() + kGrantGateTimeout);
    if (!pass.has_value())
      return absl::AbortedError(absl::StrCat("volume ", request.volume.value(), ": it stays busy"));
    absl::StatusOr<Grant> grant = TryAcquire(request);
    if (!absl::IsAborted(grant.status())) return grant;
  }
  return AcquireInLine(request, wait);
}

absl::StatusOr<Grant> TgtArray::AcquireInLine(const GrantRequest& request, absl::Duration wait) {
  const bool at_once = wait <= absl::ZeroDuration();
  const absl::Time deadline = absl::Now() + (at_once ? kGrantGateTimeout : wait);
  VolumeGates::Place place(&host_.gates, request.volume);
  std::string why = "others wait for it";
  while (absl::Now() < deadline) {
    RETURN_IF_ERROR(host_.catalogue->CheckNotFenced(cluster_, request.node));
    if (request.abandoned && request.abandoned())
      return absl::CancelledError(
          absl::StrCat("volume ", request.volume.value(), ": nobody waits for it now"));
    auto pass = place.Enter(std::min(deadline, absl::Now() + kLookInterval));
    if (!pass.has_value()) continue;
    absl::StatusOr<Grant> grant = TryAcquire(request);
    if (grant.ok() || !absl::IsAborted(grant.status())) return grant;
    why = std::string(grant.status().message());
    if (at_once)
      return absl::FailedPreconditionError(absl::StrCat(why, "; release it there first, or fence the node"));
  }
  return absl::DeadlineExceededError(absl::StrCat("volume ", request.volume.value(), ": waited ",
                                                  absl::FormatDuration(wait), " for it: ", why));
}

absl::StatusOr<Grant> TgtArray::TryAcquire(const GrantRequest& request) {
  ASSIGN_OR_RETURN(const GrantRow row, host_.catalogue->AddGrant(cluster_, request, RandomSecret()));
  host_.Remember();
  FAIL_POINT("array.grant.stored");
  RETURN_IF_ERROR(host_.OpenTarget(row));
  FAIL_POINT("array.grant.open");
  ASSIGN_OR_RETURN(const auto now, host_.catalogue->FindGeneration(row.generation));
  if (now.has_value() && !now->releasing) return Describe(row);
  return absl::FailedPreconditionError(
      absl::StrCat("volume ", request.volume.value(), ": node ", request.node.value(),
                   " was fenced, or its grant released, at the same moment"));
}

absl::StatusOr<Grant> TgtArray::Describe(const GrantRow& row) {
  ASSIGN_OR_RETURN(const VolumeRow volume, host_.catalogue->FindVolume(cluster_, row.volume));
  return Grant{.volume = row.volume,
               .node = row.node,
               .access = row.access,
               .owner = row.owner,
               .generation = row.generation,
               .connection = host_.targets->ConnectionOf(row),
               .serial = volume.volume.serial,
               .size_bytes = volume.volume.spec.size_bytes,
               .durability = volume.volume.spec.durability};
}

absl::Status TgtArray::ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                                    Generation generation) {
  RETURN_IF_ERROR(host_.Serving());
  ASSIGN_OR_RETURN(const auto grant, host_.catalogue->FindGrant(volume, node));
  if (!grant.has_value() || grant->cluster != cluster_ || grant->owner != owner) return absl::OkStatus();
  if (generation != kAnyGeneration && grant->generation != generation) return absl::OkStatus();
  RETURN_IF_ERROR(host_.catalogue->SetReleasing(grant->generation));
  FAIL_POINT("array.release.stored");
  const absl::Status finished = host_.FinishReleasing({*grant}, absl::Now() + host_.options.drain_timeout);
  host_.Remember();
  return finished;
}

absl::StatusOr<std::vector<Grant>> TgtArray::ListGrants(const GrantFilter& filter) {
  RETURN_IF_ERROR(host_.Serving());
  ASSIGN_OR_RETURN(const std::vector<GrantRow> rows, host_.catalogue->ListGrants(cluster_, filter));
  std::vector<Grant> grants;
  for (const GrantRow& row : rows) {
    ASSIGN_OR_RETURN(grants.emplace_back(), Describe(row));
  }
  return grants;
}

absl::StatusOr<Term> TgtArray::BeginTerm(const std::string& holder) {
  RETURN_IF_ERROR(host_.Serving());
  absl::StatusOr<Term> term = host_.catalogue->BeginTerm(cluster_, holder);
  host_.Remember();
  return term;
}

absl::StatusOr<FenceRecord> TgtArray::FenceNode(Term term, const NodeId& node,
                                                const std::vector<VolumeId>& volumes) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(CheckNode(node));
  ASSIGN_OR_RETURN(FenceRecord record, host_.catalogue->Fence(cluster_, term, node, volumes));
  host_.Remember();
  LogInfo("array", "fenced", {{"node", node.value()}, {"generation", absl::StrCat(record.generation)}});
  ASSIGN_OR_RETURN(std::vector<GrantRow> grants,
                   host_.catalogue->ListGrants(cluster_, {.volume = {}, .node = node}));
  grants.erase(
      std::remove_if(grants.begin(), grants.end(), [](const GrantRow& grant) { return !grant.releasing; }),
      grants.end());
  const absl::Time began = absl::Now();
  RETURN_IF_ERROR(host_.FinishReleasing(std::move(grants), began + host_.options.drain_timeout));
  host_.Remember();
  LogInfo("array", "the fenced node's volumes are free",
          {{"node", node.value()}, {"after", absl::FormatDuration(absl::Now() - began)}});
  return record;
}

absl::Status TgtArray::UnfenceNode(Term term, const NodeId& node, Generation generation) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(host_.catalogue->Unfence(cluster_, term, node, generation));
  FAIL_POINT("array.unfence.stored");
  host_.Remember();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FenceRecord>> TgtArray::ListFences() {
  RETURN_IF_ERROR(host_.Serving());
  return host_.catalogue->ListFences(cluster_);
}

absl::StatusOr<std::vector<GrantSession>> TgtArray::ListSessions() {
  RETURN_IF_ERROR(host_.Serving());
  ASSIGN_OR_RETURN(const auto statistics, host_.daemon->client().Statistics());
  ASSIGN_OR_RETURN(const auto rows, host_.catalogue->ListGrants(cluster_, {}));
  std::map<Generation, const GrantRow*> by_generation;
  for (const GrantRow& row : rows) by_generation[row.generation] = &row;
  std::vector<GrantSession> sessions;
  for (const TgtStatistics& each : statistics) {
    const auto found = by_generation.find(static_cast<Generation>(each.target));
    if (found == by_generation.end()) continue;
    sessions.push_back({.volume = found->second->volume,
                        .node = found->second->node,
                        .reads = each.reads,
                        .writes = each.writes,
                        .read_bytes = each.read_bytes,
                        .written_bytes = each.written_bytes});
  }
  return sessions;
}

absl::StatusOr<Connection> TgtArray::OpenHeartbeatLun(const NodeId& node) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(CheckNode(node));
  RETURN_IF_ERROR(host_.daemon->WaitReady(absl::Now() + kReadyTimeout));
  absl::StatusOr<Connection> access = host_.heartbeat_luns->Access(cluster_, node, RandomSecret());
  host_.Remember();
  return access;
}

absl::StatusOr<std::vector<LandedHeartbeat>> TgtArray::ListHeartbeats() {
  RETURN_IF_ERROR(host_.Serving());
  return host_.heartbeat_luns->ListHeartbeats(cluster_);
}

absl::StatusOr<std::vector<VolumeId>> TgtArray::ListWantedVolumes() {
  RETURN_IF_ERROR(host_.Serving());
  std::vector<VolumeId> wanted = host_.gates.Lines();
  std::erase_if(wanted,
                [&](const VolumeId& volume) { return !host_.catalogue->FindVolume(cluster_, volume).ok(); });
  return wanted;
}

}  // namespace lunkeeper
