#pragma once
// Holds the replicas to it that the best placed one leads: one that sees strictly less than another gives the
// lease up in time, and no other one does. Throws Violation. One thread.

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// Now, if it looked.
bool Sees(const World& world, const Replica& replica, const ArrayModel& array);

class LeaderChecker {
 public:
  explicit LeaderChecker(World& world);
  // A heartbeat of the node arrives there, whenever it was sent.
  void Hears(const Replica& replica, const NodeId& node);
  // It gives the lease up, as another one is better placed.
  void Yields(const Replica& replica);

 private:
  // When a replica could last see an array or a node, or last heard the node, and when it last could not.
  struct Seen {
    std::optional<WorldTime> at, missed_at;
  };
  void LookAtLeader();
  void NoteSights();
  bool MaySeeMore(const Replica& replica, const Replica& leader) const;

  World& world_;
  // By replica: since when, and until when, it has led although another one saw more; when it last yielded.
  std::map<std::string, WorldTime> outseen_since_, outseen_at_, yielded_at_;
  std::map<std::pair<std::string, std::string>, Seen> seen_;  // by replica and what it sees
};

}  // namespace lunkeeper::fencing::sim
