#include "fencing/sim/roll_out.h"

#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kReplicaDown = 3_s, kPluginDown = 8_s;  // at most

}  // namespace

void RollOutReplicas(World& world) {
  Span at;
  for (auto& replica : world.replicas) {
    world.After(at,
                [&world, &each = *replica] { each.Replace(world.random().Between(100_ms, kReplicaDown)); });
    at = at + world.random().Between(4_s, 15_s);
  }
}

void RollOutPlugins(World& world) {
  Span at;
  for (auto& machine : world.machines) {
    world.After(at, [&world, &each = *machine] {
      world.checker->Sick(each.id(), Cause::kPlugin, true);
      each.ClosePlugin();
      world.After(kPluginDown, [&world, &each] {
        world.checker->Sick(each.id(), Cause::kPlugin, false);
        // One that hung meanwhile has been mended, which left it to the last of what ails it.
        if (!world.checker->IsSick(each.id(), Cause::kPlugin)) each.HangPlugin(false);
      });
    });
    at = at + world.random().Between(500_ms, 6_s);
  }
}

}  // namespace lunkeeper::fencing::sim
