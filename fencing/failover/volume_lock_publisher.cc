#include "fencing/failover/volume_lock_publisher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "devices/array/arrays.h"

// A sweep goes over the volumes of one array in the order of their ids, kMostChecked at a time:
//
//   poll -> NextOf: the next volumes and their holders -> PlanWrites: compare with `locks_` -> SubmitWrites
//
// `locks_` mirrors the objects in Kubernetes. There may be 30,000, so that no informer keeps them once more:
// the reflector's thread posts each change here. While writes are in progress no sweep begins, so a sweep
// never compares with objects that are about to change. An array with 3,000 volumes takes six sweeps, one a
// second.
namespace lunkeeper::fencing {
namespace {

constexpr Span kSweepEvery = 1_s;
// Volumes that one sweep checks, and writes that it may make of them.
constexpr size_t kMostChecked = 500, kMostWrites = 100;
constexpr absl::Duration kLockCall = absl::Seconds(3);

VolumeId LockedVolume(const kube::Json& object) {
  return VolumeId(kube::TextAt(object, {"metadata", "name"}));
}

}  // namespace

VolumeLockPublisher::VolumeLockPublisher(kube::KubeClient& client, LockPublisherInputs inputs)
    : client_(client),
      inputs_(std::move(inputs)),
      worker_(inputs_.executor.MakeWorkers(1)),
      reflector_(kube::StartReflector(client_, kube::Selection{kVolumeLocks}, *this, kube::WatchTimes(),
                                      inputs_.executor)) {}

// The worker's job still posts that it is over.
VolumeLockPublisher::~VolumeLockPublisher() {
  end_.request_stop();
  worker_->Finish();
}

void VolumeLockPublisher::OnListStart() {
  inputs_.post([this] { ++list_; });
}

void VolumeLockPublisher::OnObject(const kube::Json& object) {
  inputs_.post([this, volume = LockedVolume(object), facts = ReadLock(object)] { KeepLock(volume, facts); });
}

void VolumeLockPublisher::OnDeleted(const kube::Json& object) {
  inputs_.post([this, volume = LockedVolume(object)] { ForgetLock(volume); });
}

void VolumeLockPublisher::OnListEnd() {
  inputs_.post([this] { ForgetUnlisted(); });
}

void VolumeLockPublisher::OnLive(bool live) {
  inputs_.post([this, live] { live_ = live; });
}

// What is listed again is mostly what it was, and verified.
void VolumeLockPublisher::KeepLock(const VolumeId& volume, LockFacts facts) {
  Known& known = locks_[volume];
  known.list = list_;
  if (known.exists && known.facts == facts) return;
  known = {.facts = std::move(facts), .exists = true, .list = list_};
}

void VolumeLockPublisher::ForgetLock(const VolumeId& volume) {
  if (const auto known = locks_.find(volume); known != locks_.end()) known->second.exists = false;
}

// What the last list did not have was deleted while nobody watched.
void VolumeLockPublisher::ForgetUnlisted() {
  for (auto& [volume, known] : locks_)
    if (known.list != list_) known.exists = false;
}

void VolumeLockPublisher::OnArrayPoll(const ArrayPoll& poll, Instant now) {
  Sweep& sweep = sweeps_[poll.view.array];
  if (!live_ || writing_ || (sweep.at && now - *sweep.at < kSweepEvery) || !inputs_.may_write()) return;
  sweep.at = now;
  VolumeId to;
  Holders held = NextOf(poll, sweep.from, to);
  const std::vector<Write> writes = PlanWrites(poll.view.array, std::move(held), sweep.from, to);
  // Also past volumes whose write will fail: the next round finds them again, and one that always fails must
  // not hold up the others.
  sweep.from = to;
  SubmitWrites(writes);
}

// The holders of the next kMostChecked volumes after `from`; `to` becomes the last of these volumes, or empty
// when there are no more. nth_element finds that last one without sorting all grants for each poll.
VolumeLockPublisher::Holders VolumeLockPublisher::NextOf(const ArrayPoll& poll, const VolumeId& from,
                                                         VolumeId& to) const {
  const auto& holdings = poll.view.holdings;
  std::vector<size_t> next;
  for (size_t i = 0; i < holdings.size(); ++i)
    if (holdings[i].volume > from) next.push_back(i);
  if (next.size() > kMostChecked) {
    const auto last = next.begin() + kMostChecked - 1;
    std::nth_element(next.begin(), last, next.end(),
                     [&](size_t a, size_t b) { return holdings[a].volume < holdings[b].volume; });
    to = holdings[*last].volume;
  }
  Holders held;
  for (const size_t i : next)
    if (to.empty() || holdings[i].volume <= to)
      held[holdings[i].volume].push_back(
          {holdings[i].node, poll.kinds[i].access, poll.kinds[i].generation, absl::InfiniteFuture(), {}, {}});
  return held;
}

std::vector<VolumeLockPublisher::Write> VolumeLockPublisher::PlanWrites(const ArrayId& array, Holders held,
                                                                        const VolumeId& from, VolumeId& to) {
  std::vector<Write> writes;
  ArrayId last;  // most volumes follow one of the same array
  bool is_configured = false;
  for (auto lock = locks_.upper_bound(from); lock != locks_.end() && (to.empty() || lock->first <= to);) {
    const auto at = lock++;
    const ArrayId its_array(ArrayNameIn(at->first.value()));
    if (std::exchange(last, its_array) != its_array) is_configured = inputs_.has_array(its_array);
    if (its_array == array ? held.contains(at->first) : is_configured) continue;
    if (!at->second.exists) {
      locks_.erase(at);
    } else {
      writes.push_back({at->first.value(), at->second.facts.version, nullptr});
      if (writes.size() == kMostWrites) to = at->first;
    }
  }
  for (auto& [volume, holders] : held) {
    if (!to.empty() && volume > to) break;
    const auto known = locks_.find(volume);
    const LockFacts* facts = known == locks_.end() ? nullptr : &known->second.facts;
    const bool exists = facts != nullptr && known->second.exists;
    const VolumeLock lock = DescribeLock(volume, std::move(holders), facts);
    const size_t hash = HashOf(lock);
    if (exists && known->second.verified_hash == hash) continue;
    kube::Json status = StatusOf(lock);
    if (exists && facts->digest == DigestOf(status)) {
      known->second.verified_hash = hash;
      continue;
    }
    writes.push_back({volume.value(), exists ? facts->version : Version(), std::move(status)});
    if (writes.size() >= kMostWrites) to = volume;
  }
  return writes;
}

// What a node says of its device changes more often than its grant, and writes of it are bounded like those
// of grants: at most kMostWrites a sweep, after failover's own, and of each volume one in some seconds
// (details_board.h).
// Holders in the order of their generations, which is the order in which they got the volume.
VolumeLock VolumeLockPublisher::DescribeLock(const VolumeId& volume, std::vector<LockHolder> holders,
                                             const LockFacts* known) const {
  VolumeLock lock;
  lock.holders = std::move(holders);
  std::sort(lock.holders.begin(), lock.holders.end(),
            [](const LockHolder& a, const LockHolder& b) { return a.generation < b.generation; });
  const auto pods = inputs_.cluster.PodsOf(volume);
  for (LockHolder& holder : lock.holders) {
    holder.since = inputs_.executor.WallNow();
    if (known != nullptr)
      for (const auto& [generation, since] : known->since)
        if (generation == holder.generation) holder.since = since;
    for (const Pod* pod : pods)
      if (pod->node == NameOf(holder.node)) holder.pods.push_back(pod->id.value());
    if (inputs_.find_detail) holder.detail = inputs_.find_detail(holder.node, volume);
  }
  if (const std::string* name = inputs_.objects.FindVolumeOf(volume); name != nullptr) {
    const VolumeFacts* facts = inputs_.objects.FindVolume(*name);
    lock.persistent_volume = *name;
    lock.claim = facts->claim;
    lock.block = facts->block;
  }
  return lock;
}

// The worst status is logged when it changes. `writing_` is reset by a job of the loop, after the last write.
void VolumeLockPublisher::SubmitWrites(const std::vector<Write>& writes) {
  if (writes.empty()) return;
  writing_ = true;
  worker_->Post([this, writes] {
    absl::Status worst;
    for (const Write& write : writes) {
      if (end_.stop_requested() || !inputs_.may_write()) break;
      worst.Update(WriteLock(write));
    }
    if (const std::string error(worst.message()); error != error_ && !end_.stop_requested()) {
      error_ = error;
      if (!error.empty()) LogWarn("failover", "not every VolumeLock is as it should be", {{"error", error}});
    }
    inputs_.post([this] { writing_ = false; });
  });
}

absl::Status VolumeLockPublisher::WriteLock(const Write& write) {
  const kube::ObjectRef ref{kVolumeLocks, "", write.name};
  const kube::Limits limits{inputs_.executor.WallNow() + kLockCall, end_.get_token()};
  const kube::Preconditions as_seen{"", write.expected.value()};
  absl::Status status;
  if (write.status.is_null()) {
    status = client_.Delete(ref, as_seen, std::nullopt, limits);
  } else if (write.expected.empty()) {
    const kube::Json object = {{"apiVersion", kVolumeLocks.ApiVersion()},
                               {"kind", "VolumeLock"},
                               {"metadata", {{"name", write.name}}},
                               {"status", write.status}};
    status = client_.Create({kVolumeLocks, "", ""}, object, limits).status();
  } else {
    status = client_.Patch(ref, {{"status", write.status}}, as_seen, limits).status();
  }
  // The object changed meanwhile. The watch brings its new state, and a later sweep compares again.
  const bool stale = absl::IsNotFound(status) || absl::IsAborted(status) || absl::IsAlreadyExists(status);
  return stale ? absl::OkStatus() : status;
}

}  // namespace lunkeeper::fencing
