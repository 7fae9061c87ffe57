#pragma once
// Sits between a core and its world and makes the deliberate mistakes of mutants.h that belong there, by
// changing what passes. With no mutant set everything passes as it is.

#include <optional>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class FaultInjection {
 public:
  explicit FaultInjection(World& world) : world_(world) {}

  // The settings a broken build would have.
  static Settings Change(const World& world, Settings settings);
  // False: the event is lost. May change it.
  bool Hear(Event& event);
  // What is done instead of `action`; answers made up for the core are put into `answers`.
  std::vector<Action> Act(const Action& action, std::vector<Done>& answers);

 private:
  World& world_;
};

}  // namespace lunkeeper::fencing::sim
