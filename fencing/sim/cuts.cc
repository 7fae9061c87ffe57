#include "fencing/sim/cuts.h"

#include <array>
#include <memory>
#include <vector>

#include "fencing/sim/api.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {

Mend CutBoth(World& world, Endpoint a, Endpoint b, bool one_way) {
  world.Cut(a, b);
  if (!one_way) world.Cut(b, a);
  return [&world, a, b, one_way] {
    world.Mend(a, b);
    if (!one_way) world.Mend(b, a);
  };
}

Mend CutNode(World& world, Machine& machine, bool controllers, bool api, bool arrays, bool one_way) {
  auto mends = std::make_shared<std::vector<Mend>>();
  const auto& id = machine.id();
  const auto node = machine.endpoint();
  if (controllers && api && arrays && !one_way) return CutOff(world, machine);
  const auto cut = [&](Endpoint other, Cause cause) {
    const bool towards = one_way && world.random().Percent(50);
    mends->push_back(towards ? CutBoth(world, node, other, true) : CutBoth(world, other, node, one_way));
    world.checker->Sick(id, cause, true);
    mends->push_back([&world, id, cause] { world.checker->Sick(id, cause, false); });
  };
  world.Trace("  of " + id.value());
  if (controllers)
    for (const auto& replica : world.replicas) cut(replica->endpoint(), Cause::kControllers);
  if (api) cut(world.api->endpoint(), Cause::kApi);
  if (arrays)
    for (const auto& array : world.arrays) {
      cut(array->endpoint(), Cause::kStorage);
      cut(array->portal(), Cause::kStorage);
    }
  return [mends] {
    for (auto& mend : *mends) mend();
  };
}

Mend CutOff(World& world, Machine& machine) {
  world.Trace("  of " + machine.id().value());
  world.Isolate(machine.endpoint());
  const std::array causes = {Cause::kControllers, Cause::kApi, Cause::kStorage};
  for (const Cause cause : causes) world.checker->Sick(machine.id(), cause, true);
  return [&world, &machine, causes] {
    world.Rejoin(machine.endpoint());
    for (const Cause cause : causes) world.checker->Sick(machine.id(), cause, false);
  };
}

// That all nodes lose it, also later ones, is a fault of the array's: none of them is sick.
Mend CutPortal(World& world, ArrayModel& array, Machine* only) {
  const auto portal = array.portal();
  if (!only) {
    world.Isolate(portal);
    return [&world, portal] { world.Rejoin(portal); };
  }
  world.checker->Sick(only->id(), Cause::kStorage, true);
  return [&world, id = only->id(), mend = CutBoth(world, portal, only->endpoint(), false)] {
    mend();
    world.checker->Sick(id, Cause::kStorage, false);
  };
}

}  // namespace lunkeeper::fencing::sim
