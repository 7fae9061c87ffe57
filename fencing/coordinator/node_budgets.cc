#include "fencing/coordinator/node_budgets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// After this time a rate limit is full again and no instance counts, so that forgetting gives nothing away.
constexpr std::chrono::hours kForgetAfter(1);
constexpr std::chrono::minutes kTidyEvery(1);

}  // namespace

bool RateLimit::Take(Time now) {
  // A token bucket: time fills it, and each call takes one out.
  const double seconds = std::chrono::duration<double>(now - filled_).count();
  filled_ = now;
  left_ = std::min(at_once_, left_ + seconds * per_second_);
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

absl::StatusOr<NodeBudgets::Running> NodeBudgets::BeginCall(const std::string& machine) {
  const absl::MutexLock lock(&mutex_);
  Budget& budget = BudgetOf(machine);
  if (!budget.calls.Take(budget.used))
    return absl::ResourceExhaustedError(absl::StrCat("node ", machine, " calls this controller too often"));
  if (budget.running >= limits_.running_calls)
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", machine, " has ", budget.running, " calls at this controller already"));
  ++budget.running;
  // A pointer to nothing: only its deleter matters, which gives the call's place back.
  return Running(nullptr, [this, machine](void*) {
    const absl::MutexLock again(&mutex_);
    --BudgetOf(machine).running;
  });
}

absl::Status NodeBudgets::NoteInstance(const std::string& machine, const std::string& instance) {
  const absl::MutexLock lock(&mutex_);
  Budget& budget = BudgetOf(machine);
  std::erase_if(budget.instances, [&](const auto& each) { return budget.used - each.second > kForgetAfter; });
  if (budget.instances.size() >= limits_.instances && !budget.instances.contains(instance))
    return absl::ResourceExhaustedError(absl::StrCat("node ", machine, " was ", budget.instances.size(),
                                                     " other instances within the last hour"));
  budget.instances[instance] = budget.used;
  return absl::OkStatus();
}

bool NodeBudgets::TakeHeartbeat(const std::string& machine) {
  const absl::MutexLock lock(&mutex_);
  Budget& budget = BudgetOf(machine);
  return budget.heartbeats.Take(budget.used);
}

absl::StatusOr<uint64_t> NodeBudgets::BeginStream(const std::string& machine, std::function<void()> end) {
  const absl::MutexLock lock(&mutex_);
  Budget& budget = BudgetOf(machine);
  if (!budget.begun.Take(budget.used))
    return absl::ResourceExhaustedError(absl::StrCat("node ", machine, " begins too many streams"));
  budget.streams.push_back({++last_stream_, std::move(end)});
  // The newest stays: a node that lost its connection opens another before the old one is known to be dead.
  if (budget.streams.size() > limits_.streams) {
    budget.streams.front().end();
    budget.streams.pop_front();
  }
  return last_stream_;
}

void NodeBudgets::EndStream(const std::string& machine, uint64_t stream) {
  const absl::MutexLock lock(&mutex_);
  std::erase_if(BudgetOf(machine).streams, [&](const Stream& each) { return each.number == stream; });
}

NodeBudgets::Budget& NodeBudgets::BudgetOf(const std::string& machine) {
  const auto now = std::chrono::steady_clock::now();
  if (now - tidied_ > kTidyEvery) ForgetIdle(now);
  auto found = budgets_.find(machine);
  if (found == budgets_.end())
    found = budgets_
                .emplace(machine,
                         Budget{.calls = {limits_.calls_at_once, limits_.calls_per_second},
                                .begun = {limits_.streams_at_once, limits_.streams_per_second},
                                .heartbeats = {limits_.heartbeats_at_once, limits_.heartbeats_per_second},
                                .instances = {},
                                .streams = {},
                                .used = now})
                .first;
  Budget& budget = found->second;
  budget.used = now;
  return budget;
}

void NodeBudgets::ForgetIdle(RateLimit::Time now) {
  tidied_ = now;
  std::erase_if(budgets_, [&](const auto& each) {
    const Budget& budget = each.second;
    return budget.running == 0 && budget.streams.empty() && now - budget.used > kForgetAfter;
  });
}

}  // namespace lunkeeper
