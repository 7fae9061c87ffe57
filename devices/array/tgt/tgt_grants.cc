// How a node gets a volume: it stands in the volume's line (VolumeGates), first come, first served, and tries
// when it is first and something has changed. The catalogue decides; the target is opened afterwards, inside
// the gate, and the grant is read once more at the end, because a fence may have come in between: a fence
// does not wait for gates before it marks.
#include "devices/array/tgt/tgt_grants.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kGrantGateTimeout = absl::Seconds(10);
// How often a waiting call checks that its node is not fenced and its caller has not gone.
constexpr absl::Duration kRecheckInterval = absl::Seconds(1);
constexpr char kNoTurn[] = "its node takes volumes faster than is its share of the array's time";

absl::Status CheckAwaited(const GrantRequest& request) {
  if (!request.abandoned || !request.abandoned()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("volume ", request.volume.value(), ": nobody waits for it now"));
}

}  // namespace

// Before the request waits for anybody: one that can never be granted is refused at once.
absl::Status TgtGrants::CheckVolumeIsFit(const GrantRequest& request) {
  ASSIGN_OR_RETURN(const VolumeRow row, parts_.catalogue.volumes().FindVolume(cluster_, request.volume));
  const VolumeUses& uses = row.volume.spec.uses;
  if (!uses.Allow(request.access, request.mode)) return NotMadeFor(request, uses);
  if (!row.copying) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("volume ", request.volume.value(), ": it is still being copied; try again"));
}

absl::StatusOr<Grant> TgtGrants::AcquireGrant(const GrantRequest& request, absl::Duration wait) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckNodeId(request.node));
  RETURN_IF_ERROR(CheckVolumeIsFit(request));
  ASSIGN_OR_RETURN(const auto own, parts_.catalogue.grants().FindGrant(request.volume, request.node));
  // A node that repeats its request must not wait in line behind the nodes that wait for it to release.
  if (own.has_value() && !own->releasing) {
    RETURN_IF_ERROR(parts_.servers.WaitReady({*own}, absl::Now() + kReadyTimeout));
    const auto pass = parts_.gates.Enter(request.volume, absl::Now() + kGrantGateTimeout);
    if (!pass.has_value())
      return absl::AbortedError(absl::StrCat("volume ", request.volume.value(), ": it stays busy"));
    absl::StatusOr<Grant> grant = TryAcquire(request);
    if (!absl::IsAborted(grant.status())) return grant;
  }
  // Here, since nobody waits for a tgtd inside a gate.
  RETURN_IF_ERROR(parts_.servers.ListForNewGrants(absl::Now() + kReadyTimeout).status());
  return AcquireInLine(request, wait);
}

absl::StatusOr<Grant> TgtGrants::AcquireInLine(const GrantRequest& request, absl::Duration wait) {
  const bool at_once = wait <= absl::ZeroDuration();
  const SteadyDeadline deadline(at_once ? kGrantGateTimeout : wait), turn_by(kRecheckInterval);
  const bool takes_turns = request.owner == GrantOwner::kNode;  // a node cannot make an orchestrator loop
  std::optional<VolumeGates::Place> place(std::in_place, &parts_.gates, request.volume);
  std::string why = "others wait for it";
  while (!deadline.IsOver()) {
    RETURN_IF_ERROR(parts_.catalogue.fences().CheckNotFenced(cluster_, request.node));
    RETURN_IF_ERROR(CheckAwaited(request));
    auto pass = place->Enter(absl::Now() + std::min(deadline.left(), kRecheckInterval));
    if (!pass.has_value()) continue;  // not its turn yet: check fence and caller again
    const auto turn = takes_turns ? parts_.shares.TakeTurn(cluster_, request.node) : nullptr;
    if (takes_turns && turn == nullptr) {
      why = absl::StrCat("volume ", request.volume.value(), ": ", kNoTurn);
      if (at_once && turn_by.IsOver()) return absl::UnavailableError(absl::StrCat(why, "; try again"));
      // Where it is in nobody's way: a fence of another node's grant enters the gate.
      pass.reset();
      place.reset();
      AwaitTurn(request, deadline);
      place.emplace(&parts_.gates, request.volume);
      continue;
    }
    absl::StatusOr<Grant> grant = TryAcquire(request);
    if (grant.ok() || !absl::IsAborted(grant.status())) return grant;
    why = std::string(grant.status().message());
    if (at_once)
      return absl::FailedPreconditionError(absl::StrCat(why, "; release it there first, or fence the node"));
  }
  return absl::DeadlineExceededError(absl::StrCat("volume ", request.volume.value(), ": waited ",
                                                  absl::FormatDuration(wait), " for it: ", why));
}

void TgtGrants::AwaitTurn(const GrantRequest& request, const SteadyDeadline& deadline) {
  const absl::Duration left = std::min(deadline.left(), kRecheckInterval);
  parts_.shares.AwaitTurn(cluster_, request.node,
                          MachineShares::Clock::now() + absl::ToChronoMilliseconds(left));
}

// The first grant of a volume: what has its image open then is not ours, and might write to it.
absl::Status TgtGrants::CheckIsClosed(const VolumeId& volume) {
  ASSIGN_OR_RETURN(const auto grants,
                   parts_.catalogue.grants().ListGrants(cluster_, {.volume = volume, .node = {}}));
  return grants.empty() ? parts_.images.CheckIsClosed(parts_.images.VolumePath(volume)) : absl::OkStatus();
}

absl::StatusOr<Grant> TgtGrants::TryAcquire(const GrantRequest& request) {
  RETURN_IF_ERROR(CheckIsClosed(request.volume));
  // The store may have been silent until now, and nobody would release what is granted to nobody.
  RETURN_IF_ERROR(CheckAwaited(request));
  ASSIGN_OR_RETURN(const std::vector<int> tgtds, parts_.servers.ListForNewGrants(absl::InfinitePast()));
  ASSIGN_OR_RETURN(const GrantRow row,
                   parts_.catalogue.grants().AddGrant(cluster_, request,
                                                      parts_.MakeSecrets(cluster_, request.node), tgtds));
  parts_.RememberSequence();
  FAIL_POINT("array.grant.stored");
  RETURN_IF_ERROR(parts_.servers.TargetsOf(row).OpenGranted(row));
  FAIL_POINT("array.grant.open");
  ASSIGN_OR_RETURN(const auto now, parts_.catalogue.grants().FindGeneration(row.generation));
  if (now.has_value() && !now->releasing) {
    ASSIGN_OR_RETURN(const VolumeRow volume, parts_.catalogue.volumes().FindVolume(cluster_, row.volume));
    return DescribeGrant(row, volume.volume);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("volume ", request.volume.value(), ": node ", request.node.value(),
                   " was fenced, or its grant released, at the same moment"));
}

Grant TgtGrants::DescribeGrant(const GrantRow& row, const Volume& volume) const {
  Connection connection = parts_.servers.TableOf(row).ConnectionWithPeersOf(row);
  connection.digests = volume.spec.digests;
  return Grant{.volume = row.volume,
               .node = row.node,
               .access = row.access,
               .owner = row.owner,
               .generation = row.generation,
               .connection = std::move(connection),
               .serial = volume.serial,
               .size_bytes = volume.spec.size_bytes,
               .durability = volume.spec.durability,
               .node_uid = row.node_uid,
               .limits = volume.spec.limits};
}

absl::Status TgtGrants::ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                                     Generation generation) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto grant, parts_.catalogue.grants().FindGrant(volume, node));
  if (!grant.has_value() || grant->cluster != cluster_ || grant->owner != owner) return absl::OkStatus();
  if (generation != kAnyGeneration && grant->generation != generation) return absl::OkStatus();
  // Stored first: from here on the release ends, whatever happens to this process.
  RETURN_IF_ERROR(parts_.catalogue.grants().SetReleasing(grant->generation));
  FAIL_POINT("array.release.stored");
  const absl::Status finished =
      parts_.servers.FinishReleasing({*grant}, absl::Now() + parts_.options.drain_timeout);
  parts_.RememberSequence();
  return finished;
}

absl::StatusOr<std::vector<Grant>> TgtGrants::ListGrants(const GrantFilter& filter) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const std::vector<GrantRow> rows, parts_.catalogue.grants().ListGrants(cluster_, filter));
  ASSIGN_OR_RETURN(const auto volumes, FindVolumesOf(filter));
  std::vector<Grant> grants;
  grants.reserve(rows.size());
  for (const GrantRow& row : rows) {
    const auto volume = volumes.find(row.volume);
    if (volume == volumes.end()) continue;  // released since
    grants.push_back(DescribeGrant(row, volume->second));
    if (filter.holders_only) grants.back().connection = {};
  }
  return grants;
}

absl::StatusOr<absl::flat_hash_map<VolumeId, Volume>> TgtGrants::FindVolumesOf(const GrantFilter& filter) {
  absl::flat_hash_map<VolumeId, Volume> volumes;
  if (!filter.volume.empty()) {
    absl::StatusOr<VolumeRow> row = parts_.catalogue.volumes().FindVolume(cluster_, filter.volume);
    if (absl::IsNotFound(row.status())) return volumes;
    RETURN_IF_ERROR(row.status());
    volumes.emplace(filter.volume, std::move(row->volume));
    return volumes;
  }
  ASSIGN_OR_RETURN(std::vector<VolumeRow> rows,
                   parts_.catalogue.volumes().ListGrantedVolumes(cluster_, filter.node));
  for (VolumeRow& row : rows) volumes.emplace(row.volume.id, std::move(row.volume));
  return volumes;
}

absl::StatusOr<std::string> TgtGrants::GrantsVersion() {
  RETURN_IF_ERROR(parts_.check_serving());
  return parts_.catalogue.version();
}

absl::StatusOr<std::vector<GrantSession>> TgtGrants::ListSessions() {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto statistics, parts_.servers.ReadStatistics());
  ASSIGN_OR_RETURN(const auto by_target, parts_.catalogue.grants().ListByTarget());
  std::vector<GrantSession> sessions;
  AddSessions(statistics, *by_target, sessions);
  return sessions;
}

// tgtd knows targets by number. Numbers that are in no row belong to heartbeat LUNs, to other clusters, or to
// grants that came or went between the two calls.
void TgtGrants::AddSessions(const std::vector<TgtStatistics>& statistics, const GrantsByTarget& by_target,
                            std::vector<GrantSession>& sessions) const {
  for (const TgtStatistics& each : statistics) {
    const auto found = by_target.find(each.target);
    if (found == by_target.end() || found->second.cluster != cluster_) continue;
    sessions.push_back({.volume = found->second.volume,
                        .node = found->second.node,
                        .reads = each.reads,
                        .writes = each.writes,
                        .read_bytes = each.read_bytes,
                        .written_bytes = each.written_bytes});
  }
}

absl::StatusOr<SeenSessions> TgtGrants::ListSeenSessions() {
  RETURN_IF_ERROR(parts_.check_serving());
  const auto each = parts_.servers.ReadStatisticsOfEach();
  RETURN_IF_ERROR(each.front().status());
  // Afterwards: a grant that was made meanwhile in one that did not answer is unseen too.
  ASSIGN_OR_RETURN(const auto by_target, parts_.catalogue.grants().ListByTarget());
  SeenSessions seen;
  std::map<int, UnseenGrants> unseen;
  for (size_t number = 0; number < each.size(); ++number) {
    if (each[number].ok()) {
      AddSessions(*each[number], *by_target, seen.sessions);
    } else {
      unseen[static_cast<int>(number)].why = absl::StrCat("its tgtd ", number, " does not answer");
    }
  }
  if (unseen.empty()) return seen;
  for (const auto& [target, row] : *by_target)
    if (const auto found = unseen.find(row.tgtd); found != unseen.end() && row.cluster == cluster_)
      found->second.grants.emplace_back(row.volume, row.node);
  for (auto& [number, grants] : unseen)
    if (!grants.grants.empty()) seen.unseen.push_back(std::move(grants));
  return seen;
}

absl::StatusOr<std::vector<VolumeId>> TgtGrants::ListWantedVolumes() {
  RETURN_IF_ERROR(parts_.check_serving());
  // The gates are the whole array's, so other clusters' volumes are filtered out.
  std::vector<VolumeId> wanted = parts_.gates.ListAwaitedVolumes();
  std::erase_if(wanted, [&](const VolumeId& volume) {
    return !parts_.catalogue.volumes().FindVolume(cluster_, volume).ok();
  });
  return wanted;
}

}  // namespace lunkeeper
