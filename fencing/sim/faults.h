#pragma once
// Faults, drawn from the seed. Each begins at its time and lasts for a while; then it is mended, at the
// latest by HealAll. One thread.

#include <set>
#include <string>
#include <vector>

#include "fencing/sim/cuts.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class Machine;
enum class Cause;

class Faults {
 public:
  explicit Faults(World& world) : world_(world) {}

  // The names for the command line.
  static const std::vector<std::string>& Names();
  // Schedules `count` faults within [begin, end); only of `names` if there are any.
  void Compose(int count, WorldTime begin, WorldTime end, const std::set<std::string>& names);
  void HealAll();

 private:
  void Strike(const std::string& name);
  Mend StrikeNode(const std::string& name);
  // Its illness; `undo` what made it ill, when that was the last fault of the kind.
  Mend Sicken(Machine& machine, Cause cause, std::function<void()> undo);
  Mend PowerOff(Machine& machine);
  Mend Hang(Machine& machine);
  Mend StrikeRack(bool power);
  Mend StrikeNetwork(const std::string& name);
  Mend StrikeReplica(const std::string& name);
  Mend StrikeArray(const std::string& name);
  Mend StrikeApi(const std::string& name);
  Mend StrikeByPeople(const std::string& name);
  void MendLater(Mend mend, Span least, Span most);
  Mend Recreate(Machine& machine);
  Machine& AnyMachine();

  World& world_;
  std::vector<Mend> open_;
};

}  // namespace lunkeeper::fencing::sim
