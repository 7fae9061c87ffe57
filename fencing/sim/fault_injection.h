#pragma once
// Stands between a core and its world, and changes what passes as the mutants of mutants.h demand. With no
// mutant set, everything passes unchanged. One thread.

#include <map>
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
  std::map<ArrayId, ArrayView> last_views_;  // as they came
};

}  // namespace lunkeeper::fencing::sim
