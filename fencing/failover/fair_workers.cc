#include "fencing/failover/fair_workers.h"

#include <algorithm>

namespace lunkeeper::fencing {

// The workers get one RunNext for each job, so each finds one that waits; which one, it chooses then.
void FairWorkers::Post(const std::string& group, std::function<void()> job) {
  {
    absl::MutexLock lock(&mutex_);
    groups_[group].waiting.emplace_back(++posted_, std::move(job));
  }
  workers_->Post([this] { RunNext(); });
}

FairWorkers::Groups::iterator FairWorkers::NextGroup() {
  const auto comes_before = [](const auto& a, const auto& b) {
    if (a.second.waiting.empty() || b.second.waiting.empty()) return !a.second.waiting.empty();
    return std::pair(a.second.running, a.second.waiting.front().first) <
           std::pair(b.second.running, b.second.waiting.front().first);
  };
  return std::min_element(groups_.begin(), groups_.end(), comes_before);
}

void FairWorkers::RunNext() {
  Groups::iterator group;
  std::function<void()> job;
  {
    absl::MutexLock lock(&mutex_);
    group = NextGroup();
    job = std::move(group->second.waiting.front().second);
    group->second.waiting.pop_front();
    ++group->second.running;
  }
  job();
  absl::MutexLock lock(&mutex_);
  if (--group->second.running == 0 && group->second.waiting.empty()) groups_.erase(group);
}

}  // namespace lunkeeper::fencing
