#include "fencing/failover/array_hub.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "fencing/failover/array_actions.h"

// An Entry is made when an array first appears and lives as long as the hub, so that threads may keep a plain
// reference to it. When its array is removed from the configuration only the pointer goes; when one of that
// name returns, the entry gets the new pointer.
//
// Entry::mutex guards that pointer alone. Executor copy the shared_ptr and call the array without the mutex,
// so a removed array lives until its last call ends.
namespace lunkeeper::fencing {
namespace {

// Five polls fit into the time after which a silent node is suspected, so one lost poll decides nothing.
constexpr absl::Duration kPollEvery = absl::Milliseconds(500);
// So many arrays begin one after the other within that time.
constexpr size_t kTurns = 10;
constexpr Span kFirstAnswer = 5_s;
constexpr Span kSlow = 1500_ms, kReportEvery = 60_s;

}  // namespace

ArrayHub::~ArrayHub() {
  for (auto& [id, entry] : entries_) {
    entry->polling.reset();
    entry->workers->Finish();  // waits also for work that is queued: each of it must be answered
  }
}

std::shared_ptr<Array> ArrayHub::Entry::GetArray() {
  absl::MutexLock lock(&mutex);
  return array;
}

void ArrayHub::Entry::SetArray(std::shared_ptr<Array> now) {
  absl::MutexLock lock(&mutex);
  array = std::move(now);
}

std::vector<ArrayId> ArrayHub::RefreshArrays() {
  std::map<ArrayId, std::shared_ptr<Array>> now;
  for (NamedArray& named : arrays_.ListArrays()) now[ArrayId(named.name)] = std::move(named.array);
  std::vector<ArrayId> gone;
  for (auto& [id, entry] : entries_) {
    const auto found = now.find(id);
    auto array = found == now.end() ? nullptr : found->second;
    if (array == nullptr && entry->GetArray() != nullptr) gone.push_back(id);
    entry->SetArray(std::move(array));
  }
  for (auto& [id, array] : now) {
    if (entries_.contains(id)) continue;
    auto entry = std::make_unique<Entry>(id, executor_);
    entry->SetArray(array);
    entry->polling = std::make_unique<Periodic>(
        kPollEvery, [this, at = entry.get()] { PollEntry(*at); }, executor_,
        kPollEvery / kTurns * (entries_.size() % kTurns));
    entries_[id] = std::move(entry);
  }
  return gone;
}

// Entries are never removed, so an entry alone does not mean that its array is configured.
bool ArrayHub::HasArray(const ArrayId& id) const {
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second->GetArray() != nullptr;
}

std::vector<ArrayId> ArrayHub::ListArrays() const {
  std::vector<ArrayId> arrays;
  for (const auto& entry : entries_)
    if (HasArray(entry.first)) arrays.push_back(entry.first);
  return arrays;
}

// That one is late the core sees by itself. An array that never answered is lost too: a replica that has seen
// none of its arrays since it started must not go on leading.
std::vector<ArrayId> ArrayHub::LostArrays(Instant now) const {
  std::vector<ArrayId> lost;
  for (const auto& [id, entry] : entries_) {
    if (!HasArray(id)) continue;
    const Instant answered = entry->answered_at.load();
    const bool never = answered == kNever && now - entry->made_at > kFirstAnswer;
    if (entry->failed_at.load() > answered || never) lost.push_back(id);
  }
  return lost;
}

void ArrayHub::PostWork(const ArrayId& id, std::function<void(Array*)> work) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return work(nullptr);
  found->second->workers->Post([at = found->second.get(), work = std::move(work)] {
    const auto array = at->GetArray();
    work(array.get());
  });
}

// On the entry's polling thread. Logs when the error changes, not with each poll.
void ArrayHub::PollEntry(Entry& entry) {
  const auto array = entry.GetArray();
  if (array == nullptr || entry.ticket.use_count() > kMostWaiting) return;  // one of them is the entry's own
  const Instant asked = NowOn(executor_);
  auto poll = PollArray(entry.id, *array, executor_);
  const std::string error(poll.status().message());
  if (error != entry.error) {
    if (!poll.ok())
      LogWarn("failover", "an array cannot be looked at", {{"array", entry.id.value()}, {"error", error}});
    if (poll.ok()) LogInfo("failover", "an array is looked at again", {{"array", entry.id.value()}});
    entry.error = error;
  }
  if (!poll.ok()) {
    entry.failed_at = NowOn(executor_);
    return;
  }
  entry.answered_at = NowOn(executor_);
  ReportIfSlow(entry, asked);
  poll->ticket = entry.ticket;
  polled_(*std::move(poll));
}

void ArrayHub::ReportIfSlow(Entry& entry, Instant asked) const {
  const Instant now = NowOn(executor_);
  const bool reported = entry.reported_slow_at && now - *entry.reported_slow_at < kReportEvery;
  if (now - asked < kSlow || reported) return;
  entry.reported_slow_at = now;
  LogWarn("failover", "an array answers slowly, and a node that dies is noticed later",
          {{"array", entry.id.value()}, {"took", absl::FormatDuration(ToAbsl(now - asked))}});
}

}  // namespace lunkeeper::fencing
