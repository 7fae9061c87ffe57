// Events of one moment happen in the order in which they were scheduled, so that a run depends on its seed
// alone. A message through a cut is lost half the time; otherwise it is delivered late, if the cut is mended
// by then: a switch that comes back may still hold what it was given before.

#include "fencing/sim/world.h"

#include <utility>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/deployment.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {

namespace {

constexpr Span kResend = 200_ms;  // TCP's least time until it sends a packet again (TCP_RTO_MIN)

}  // namespace

World::World(uint64_t seed, Mutants mutants, bool tracing)
    : random_(seed), bugs_(mutants), tracing_(tracing) {}
World::~World() = default;

void World::Add(Span delay, bool in_process, std::function<void()> what) {
  if (ended_ && !in_process) return;
  agenda_.push({now_ + delay, ++order_, in_process, std::move(what)});
}

void World::Check(const std::function<void()>& check) {
  try {
    check();
  } catch (const Violation& violation) {
    if (!violation_) violation_ = violation;
  }
}

void World::End() {
  ended_ = true;
  std::priority_queue<Item> left;
  for (; !agenda_.empty(); agenda_.pop())
    if (agenda_.top().in_process) left.push(std::move(const_cast<Item&>(agenda_.top())));
  agenda_ = std::move(left);
}

void World::RunUntil(WorldTime end) {
  while (!agenda_.empty() && agenda_.top().at <= end) {
    now_ = agenda_.top().at;
    auto what = std::move(const_cast<Item&>(agenda_.top()).what);  // it is popped at once
    agenda_.pop();
    ++events_;
    what();
    if (violation_) throw *std::exchange(violation_, std::nullopt);
  }
  now_ = end;
}

void World::Send(Endpoint from, Endpoint to, std::function<void()> deliver) {
  auto delay = random_.Between(1_ms, 4_ms + jitter_);
  if (lost_percent_ > 0 && random_.Percent(lost_percent_))
    delay = delay + random_.Between(kResend, 3 * kResend);
  if (Open(from, to)) return After(delay, std::move(deliver));
  if (random_.Percent(50)) return;
  After(random_.Between(200_ms, 4_s), [this, from, to, deliver = std::move(deliver)] {
    if (Open(from, to)) deliver();
  });
}

void World::Pause(bool on) {
  pauses_ += on ? 1 : -1;
  settings.paused = pauses_ > 0;
  if (!settings.paused) paused_since_.reset();
  if (settings.paused && !paused_since_) paused_since_ = now_;
  for (auto& replica : replicas) replica->ApplySettings();
}

Endpoint World::AddEndpoint() {
  const auto count = cuts_.size() + 1;
  cuts_.resize(count);
  isolated_.resize(count);
  for (auto& row : cuts_) row.resize(count);
  hosts_.push_back(count - 1);
  return count - 1;
}

Endpoint World::AddEndpointOn(Endpoint machine) {
  const Endpoint pod = AddEndpoint();
  hosts_[pod] = machine;
  return pod;
}

void World::Trace(const std::string& line) {
  if (tracing_) trace_ += FormatSeconds(now_.since_start()) + "  " + line + "\n";
}

ArrayModel& World::FindArray(const ArrayId& id) {
  for (auto& array : arrays)
    if (array->id() == id) return *array;
  throw std::logic_error("no array " + id.value());
}

}  // namespace lunkeeper::fencing::sim
