#include "devices/array/testing/fake_array.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/array/testing/fake_connection.h"
#include "devices/array/testing/list_page.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kGranularity = 1 << 20;
constexpr absl::Duration kLookInterval = absl::Milliseconds(20);

uint64_t RoundUp(uint64_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

}  // namespace

FakeArray::FakeArray(FakeArrayOptions options) : options_(std::move(options)) {}

void FakeArray::FailWith(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  failure_ = status;
  changed_.SignalAll();
}

void FakeArray::HoldDrains(bool hold) {
  absl::MutexLock lock(&mutex_);
  hold_drains_ = hold;
}

size_t FakeArray::Waiting() {
  absl::MutexLock lock(&mutex_);
  size_t waiting = 0;
  for (const auto& [id, entry] : volumes_) waiting += entry.waiters.size();
  return waiting;
}

std::string FakeArray::NextId(const std::string& prefix) {
  return absl::StrFormat("%s%016x", prefix, ++ids_);
}

absl::StatusOr<FakeArray::VolumeEntry*> FakeArray::Find(const VolumeId& id) {
  RETURN_IF_ERROR(failure_);
  const auto it = volumes_.find(id);
  if (it == volumes_.end())
    return absl::NotFoundError(absl::StrCat("volume ", id.value(), ": there is none"));
  return &it->second;
}

uint64_t FakeArray::ThickBytes() {
  uint64_t bytes = 0;
  for (const auto& [id, entry] : volumes_) {
    if (entry.volume.spec.provisioning == Provisioning::kThick) bytes += entry.volume.spec.size_bytes;
  }
  return bytes;
}

absl::StatusOr<uint64_t> FakeArray::SizeFor(const VolumeSpec& spec) {
  const uint64_t size = RoundUp(std::max(spec.size_bytes, uint64_t{1}));
  uint64_t source_size = 0;
  if (!spec.source_volume.empty()) {
    ASSIGN_OR_RETURN(const VolumeEntry* source, Find(spec.source_volume));
    source_size = source->volume.spec.size_bytes;
  } else if (!spec.source_snapshot.empty()) {
    ASSIGN_OR_RETURN(const Snapshot source, snapshots_.Get(spec.source_snapshot));
    source_size = source.size_bytes;
  }
  if (size > options_.largest_volume_bytes || size < source_size)
    return absl::OutOfRangeError(
        absl::StrFormat("create volume %s: %d bytes: the source has %d, the largest is %d", spec.name, size,
                        source_size, options_.largest_volume_bytes));
  if (spec.provisioning == Provisioning::kThick && ThickBytes() + size > options_.pool_bytes)
    return absl::ResourceExhaustedError(absl::StrCat("create volume ", spec.name, ": the pool is full"));
  return size;
}

absl::StatusOr<Volume> FakeArray::CreateVolume(const VolumeSpec& spec) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  if (const auto it = volume_names_.find(spec.name); it != volume_names_.end()) {
    const auto& [have, asked_bytes, grants, waiters] = volumes_.at(it->second);
    const uint64_t bytes = RoundUp(spec.size_bytes);
    if (IsMadeAs(have.spec, spec) && (bytes == asked_bytes || bytes == have.spec.size_bytes)) return have;
    return absl::AlreadyExistsError(
        absl::StrCat("create volume ", spec.name, ": there is one of that name, made otherwise"));
  }
  ASSIGN_OR_RETURN(const uint64_t size, SizeFor(spec));
  Volume volume;
  volume.id = VolumeId(NextId(volume_prefix_));
  volume.spec = spec;
  volume.spec.size_bytes = size;
  volume.spec.limits.version = spec.limits == VolumeLimits() ? 0 : 1;
  volume.serial = volume.id.value().substr(volume_prefix_.size());
  volume.created = absl::Now();
  volumes_[volume.id] = {.volume = volume, .asked_bytes = size, .grants = {}, .waiters = {}};
  volume_names_[spec.name] = volume.id;
  return volume;
}

absl::Status FakeArray::DeleteVolume(const VolumeId& id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  const auto it = volumes_.find(id);
  if (it == volumes_.end()) return absl::OkStatus();
  if (!it->second.grants.empty())
    return absl::FailedPreconditionError(absl::StrCat("delete volume ", id.value(), ": node ",
                                                      it->second.grants.begin()->first.value(), " has it"));
  if (!it->second.waiters.empty())
    return absl::FailedPreconditionError(absl::StrCat("delete volume ", id.value(), ": a node waits for it"));
  volume_names_.erase(it->second.volume.spec.name);
  volumes_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<Volume> FakeArray::GetVolume(const VolumeId& id) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const VolumeEntry* entry, Find(id));
  return entry->volume;
}

absl::StatusOr<Page<Volume>> FakeArray::ListVolumes(const std::string& token, size_t limit) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return ListPage<Volume>(volumes_, token, limit, volume_prefix_,
                          [](const VolumeEntry& entry) { return &entry.volume; });
}

absl::StatusOr<Volume> FakeArray::ExpandVolume(const VolumeId& id, uint64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(VolumeEntry* const entry, Find(id));
  VolumeSpec& spec = entry->volume.spec;
  const uint64_t size = std::max(RoundUp(size_bytes), spec.size_bytes);
  if (size > options_.largest_volume_bytes)
    return absl::OutOfRangeError(absl::StrFormat("expand volume %s: %d bytes: the largest is %d", id.value(),
                                                 size, options_.largest_volume_bytes));
  if (spec.provisioning == Provisioning::kThick &&
      ThickBytes() - spec.size_bytes + size > options_.pool_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("expand volume ", id.value(), ": the pool is full"));
  }
  spec.size_bytes = size;
  for (auto& [node, grant] : entry->grants) grant.size_bytes = size;
  return entry->volume;
}

absl::StatusOr<Volume> FakeArray::ModifyVolume(const VolumeId& id, const VolumeChange& change) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(VolumeEntry* const entry, Find(id));
  const VolumeSpec changed = WithChange(entry->volume.spec, change);
  if (NeedsNoGrant(entry->volume.spec, changed) && !entry->grants.empty())
    return absl::FailedPreconditionError(
        absl::StrCat("volume ", id.value(), ": node ", entry->grants.begin()->first.value(), " has it"));
  entry->volume.spec = changed;
  for (auto& [node, grant] : entry->grants) grant.limits = changed.limits;
  ++modified_;
  return entry->volume;
}

absl::StatusOr<PoolCapacity> FakeArray::GetCapacity() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  const uint64_t available = options_.pool_bytes - ThickBytes();
  return PoolCapacity{options_.pool_bytes, available, kGranularity, options_.largest_volume_bytes, available};
}

Grant FakeArray::MakeGrant(const GrantRequest& request, VolumeEntry& entry) {
  Grant grant;
  grant.volume = request.volume;
  grant.node = request.node;
  grant.access = request.access;
  grant.owner = request.owner;
  grant.generation = ++generation_;
  grant.connection = MakeFakeConnection(options_.name, request.volume.value(), request.node, generation_);
  grant.serial = entry.volume.serial;
  grant.size_bytes = entry.volume.spec.size_bytes;
  grant.durability = entry.volume.spec.durability;
  grant.connection.digests = entry.volume.spec.digests;
  grant.limits = entry.volume.spec.limits;
  grant.node_uid = request.node_uid;
  return entry.grants[request.node] = grant;
}

size_t FakeArray::VolumesOf(const NodeId& node) {
  return static_cast<size_t>(std::count_if(
      volumes_.begin(), volumes_.end(), [&](const auto& item) { return item.second.grants.contains(node); }));
}

absl::StatusOr<Grant> FakeArray::TryAcquire(const GrantRequest& request, const Waiter* self) {
  ASSIGN_OR_RETURN(VolumeEntry* const entry, Find(request.volume));
  const std::string what =
      absl::StrCat("volume ", request.volume.value(), " for node ", request.node.value(), ": ");
  if (fences_.IsFenced(request.node)) {
    return absl::FailedPreconditionError(absl::StrCat(what, "the node is fenced: unfence it first"));
  }
  VolumeUses& uses = entry->volume.spec.uses;
  if (!uses.Allow(request.access, request.mode)) return NotMadeFor(request, uses);
  if (const auto it = entry->grants.find(request.node); it != entry->grants.end()) {
    if (it->second.access == request.access) return it->second;
    return absl::FailedPreconditionError(
        absl::StrCat(what, "the node has it with another access: release it first"));
  }
  for (const auto& [node, grant] : entry->grants) {
    if (CanJoin(request.access, grant.access, uses)) continue;
    return absl::UnavailableError(absl::StrCat(what, "node ", node.value(), " has it"));
  }
  if (!entry->waiters.empty() && &entry->waiters.front() != self) {
    return absl::UnavailableError(
        absl::StrCat(what, "node ", entry->waiters.front().request.node.value(), " waits for it already"));
  }
  if (request.most != 0 && VolumesOf(request.node) >= request.most)
    return absl::ResourceExhaustedError(
        absl::StrCat(what, "the node has ", VolumesOf(request.node), " already"));
  if (uses.empty() && request.access != Access::kReadOnly) uses.Add(request.access, VolumeMode::kAny);
  return MakeGrant(request, *entry);
}

absl::StatusOr<Grant> FakeArray::AcquireByTurn(const GrantRequest& request, absl::Time deadline) {
  // The volume cannot go while somebody waits.
  std::list<Waiter>& waiters = volumes_.at(request.volume).waiters;
  const auto self = waiters.insert(waiters.end(), Waiter{request});
  absl::StatusOr<Grant> grant = TryAcquire(request, &*self);
  while (failure_.ok() && absl::IsUnavailable(grant.status())) {
    if (absl::Now() >= deadline) {
      grant = absl::DeadlineExceededError(grant.status().message());
      break;
    }
    if (request.abandoned && request.abandoned()) {
      grant = absl::CancelledError("nobody waits for it now");
      break;
    }
    changed_.WaitWithDeadline(&mutex_, std::min(deadline, absl::Now() + kLookInterval));
    grant = TryAcquire(request, &*self);
  }
  waiters.erase(self);
  changed_.SignalAll();  // the next in line may come in beside this one
  return grant;
}

absl::StatusOr<Grant> FakeArray::AcquireGrant(const GrantRequest& request, absl::Duration wait) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Grant> grant = TryAcquire(request, nullptr);
  if (!failure_.ok() || !absl::IsUnavailable(grant.status())) return grant;
  if (wait <= absl::ZeroDuration()) return absl::FailedPreconditionError(grant.status().message());
  return AcquireByTurn(request, absl::Now() + wait);
}

absl::Status FakeArray::ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                                     Generation generation) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  const auto entry = volumes_.find(volume);
  if (entry == volumes_.end()) return absl::OkStatus();
  const auto grant = entry->second.grants.find(node);
  if (grant == entry->second.grants.end() || grant->second.owner != owner) return absl::OkStatus();
  if (generation != kAnyGeneration && grant->second.generation != generation) return absl::OkStatus();
  if (hold_drains_) {
    return absl::DeadlineExceededError(absl::StrCat("release volume ", volume.value(), " from node ",
                                                    node.value(), ": its commands have not ended"));
  }
  entry->second.grants.erase(grant);
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Grant>> FakeArray::ListGrants(const GrantFilter& filter) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  std::vector<Grant> grants;
  for (const auto& [id, entry] : volumes_) {
    if (!filter.volume.empty() && filter.volume != id) continue;
    for (const auto& [node, grant] : entry.grants) {
      if (!filter.node.empty() && filter.node != node) continue;
      grants.push_back(grant);
      if (filter.holders_only) grants.back().connection = {};
    }
  }
  return grants;
}

// Between two generations grants only end.
absl::StatusOr<std::string> FakeArray::GrantsVersion() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  size_t grants = 0;
  for (const auto& [id, entry] : volumes_) grants += entry.grants.size();
  return absl::StrCat(generation_, "-", grants, "-", modified_);
}

absl::StatusOr<Term> FakeArray::BeginTerm(const std::string&) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return fences_.BeginTerm();
}

absl::StatusOr<FenceRecord> FakeArray::FenceNode(Term term, const FenceRequest& request) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(fences_.CheckTerm(term));
  const auto is_fenced = [&](const auto& each) { return IsIdFor(request.node, each.first); };
  FenceRequest wanted = request;
  for (const auto& [id, entry] : volumes_)
    if (request.all_volumes && std::any_of(entry.grants.begin(), entry.grants.end(), is_fenced))
      wanted.volumes.push_back(id);
  FenceRecord fence = fences_.RecordFence(wanted, ++generation_);
  changed_.SignalAll();
  absl::Status held;
  for (auto& [id, entry] : volumes_) {
    const bool named = std::count(wanted.volumes.begin(), wanted.volumes.end(), id) > 0;
    if (!named || !std::any_of(entry.grants.begin(), entry.grants.end(), is_fenced)) continue;
    if (hold_drains_ || hidden_.contains(id)) {
      held =
          absl::DeadlineExceededError(absl::StrCat(id.value(), ": commands have not ended: repeat the call"));
    } else {
      std::erase_if(entry.grants, is_fenced);
    }
  }
  RETURN_IF_ERROR(held);
  return fence;
}

absl::Status FakeArray::UnfenceNode(Term term, const NodeId& node, Generation generation) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(fences_.CheckTerm(term));
  return fences_.RemoveFence(node, generation);
}

absl::StatusOr<std::vector<FenceRecord>> FakeArray::ListFences() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return fences_.ListFences();
}

void FakeArray::HideSessions(const VolumeId& volume, bool hide) {
  absl::MutexLock lock(&mutex_);
  hide ? (void)hidden_.insert(volume) : (void)hidden_.erase(volume);
}

absl::StatusOr<std::vector<GrantSession>> FakeArray::ListSessions() {
  ASSIGN_OR_RETURN(SeenSessions seen, ListSeenSessions());
  if (!seen.unseen.empty()) return absl::UnavailableError(seen.unseen.front().why);
  return std::move(seen.sessions);
}

absl::StatusOr<SeenSessions> FakeArray::ListSeenSessions() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  SeenSessions seen;
  UnseenGrants unseen{.why = "its tgtd 1 does not answer", .grants = {}};
  for (const auto& [id, entry] : volumes_)
    for (const auto& [node, grant] : entry.grants) {
      if (hidden_.contains(id)) {
        unseen.grants.emplace_back(id, node);
      } else {
        seen.sessions.push_back({id, node, 0, 0, 0, 0});
      }
    }
  if (!unseen.grants.empty()) seen.unseen.push_back(std::move(unseen));
  return seen;
}

void FakeArray::LandHeartbeat(const NodeId& node) {
  absl::MutexLock lock(&mutex_);
  heartbeats_.LandHeartbeat(node);
}

absl::StatusOr<Connection> FakeArray::OpenHeartbeatLun(const HeartbeatLunRequest& request) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return heartbeats_.OpenLun(request, options_.name, generation_);
}

absl::StatusOr<std::vector<LandedHeartbeat>> FakeArray::ListHeartbeats() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return heartbeats_.ListHeartbeats();
}

absl::StatusOr<std::vector<VolumeId>> FakeArray::ListWantedVolumes() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  std::vector<VolumeId> wanted;
  for (const auto& [id, entry] : volumes_)
    if (!entry.waiters.empty()) wanted.push_back(id);
  return wanted;
}

}  // namespace lunkeeper
