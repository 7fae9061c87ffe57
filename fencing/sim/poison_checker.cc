// What counts is what could be known when the volume was last taken from a dead node: only then could it have
// been held back. A charge that is stored later comes too late. It is late where a leader stalls as it is
// about to store it: another one takes over, and where that one began to watch after the node had taken the
// volume it cannot tell what the node died of. What the stalled one saw it no longer has any say with.

#include "fencing/sim/poison_checker.h"

#include <algorithm>

#include "fencing/core/trace.h"
#include "fencing/sim/api.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kMeets = 30_s;

}  // namespace

void PoisonChecker::DiedOf(const VolumeId& volume, const NodeId& node) {
  if (std::ranges::count_if(deaths_, [](const auto& death) { return death.second.known; }) >= 2)
    throw Violation(FormatSeconds(world_.now().since_start()) + "  " + node.value() + " died of " +
                    volume.value() + ", the third one");
  // What died with it cannot tell, nor what has started or stood still since it took the volume.
  auto& death = deaths_[node] = {.at = world_.now()};
  for (const auto& replica : world_.replicas) {
    const auto awake = std::max(replica->began_at(), replica->stalled_until());
    if (replica->running() && !replica->stalled() && world_.now() - awake >= kMeets)
      death.observers.insert(replica->name());
  }
}

void PoisonChecker::Decides(const Replica& replica, const NodeFence& fence) {
  // A fence that is adopted, or a record that was lost: it took them already.
  if (!fence.generations.empty() || world_.api->fences().contains(fence.node)) return;
  for (const auto& [array, volumes] : fence.volumes)
    for (const auto& volume : volumes)
      if (IsPoisoned(volume))
        for (auto& [node, death] : deaths_) death.known = IsKnown(volume, node, death, replica);
}

bool PoisonChecker::IsKnown(const VolumeId& volume, const NodeId& node, const Death& death,
                            const Replica& leader) const {
  const auto& charged = world_.api->ChargedTo(volume);
  if (std::ranges::find(charged, node) != charged.end()) return true;
  return std::ranges::any_of(world_.replicas, [&](const auto& each) {
    const bool stalled = each->stalled() || each->stalled_until() > death.at;
    return each->running() && death.observers.contains(each->name()) && (each.get() == &leader || !stalled);
  });
}

}  // namespace lunkeeper::fencing::sim
