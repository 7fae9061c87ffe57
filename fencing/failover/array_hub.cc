#include "fencing/failover/array_hub.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "base/log.h"
#include "fencing/failover/array_actions.h"

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
constexpr Span kPollTimeout = 1500_ms;

}  // namespace

ArrayHub::~ArrayHub() {
  for (auto& [id, entry] : entries_) {
    entry->look.reset();
    entry->workers.join();
  }
}

std::shared_ptr<Array> ArrayHub::Entry::Get() {
  absl::MutexLock lock(&mutex);
  return array;
}

void ArrayHub::Entry::Set(std::shared_ptr<Array> now) {
  absl::MutexLock lock(&mutex);
  array = std::move(now);
}

std::vector<ArrayId> ArrayHub::Refresh() {
  std::map<ArrayId, std::shared_ptr<Array>> now;
  for (NamedArray& named : arrays_.ListArrays()) now[ArrayId(named.name)] = std::move(named.array);
  std::vector<ArrayId> gone;
  for (auto& [id, entry] : entries_) {
    const auto found = now.find(id);
    auto array = found == now.end() ? nullptr : found->second;
    if (array == nullptr && entry->Get() != nullptr) gone.push_back(id);
    entry->Set(std::move(array));
  }
  for (auto& [id, array] : now) {
    if (entries_.contains(id)) continue;
    auto entry = std::make_unique<Entry>();
    entry->id = id;
    entry->Set(array);
    entry->look = std::make_unique<Periodic>(kLookEvery, [this, at = entry.get()] { LookAt(*at); });
    entries_[id] = std::move(entry);
  }
  return gone;
}

bool ArrayHub::Has(const ArrayId& id) const {
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second->Get() != nullptr;
}

std::vector<ArrayId> ArrayHub::Lost(Instant now) const {
  std::vector<ArrayId> lost;
  for (const auto& [id, entry] : entries_) {
    const Instant answered = entry->answered_at;
    if (answered == kNever || !Has(id)) continue;
    if (entry->failed_at.load() > answered || now - answered > kPollTimeout) lost.push_back(id);
  }
  return lost;
}

void ArrayHub::Post(const ArrayId& id, std::function<void(FenceControl*)> work) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return work(nullptr);
  boost::asio::post(found->second->workers, [at = found->second.get(), work = std::move(work)] {
    const auto array = at->Get();
    work(array == nullptr ? nullptr : &array->fences());
  });
}

void ArrayHub::LookAt(Entry& entry) {
  const auto array = entry.Get();
  if (array == nullptr) return;
  auto poll = PollArray(entry.id, *array);
  const std::string error(poll.status().message());
  if (error != entry.error) {
    if (!poll.ok())
      LogWarn("failover", "an array cannot be looked at", {{"array", entry.id.value()}, {"error", error}});
    if (poll.ok()) LogInfo("failover", "an array is looked at again", {{"array", entry.id.value()}});
    entry.error = error;
  }
  if (!poll.ok()) {
    entry.failed_at = MonotonicNow();
    return;
  }
  entry.answered_at = MonotonicNow();
  seen_(*std::move(poll));
}

}  // namespace lunkeeper::fencing
