#pragma once
// The controllers' Deployment, with what Kubernetes does for it: on which machine each replica runs. A
// replica on a machine that Kubernetes has lost is deleted after a while, and another one is made elsewhere.
// What still runs of it ends in order when its kubelet learns of that. One thread.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class Deployment {
 public:
  // Makes the replicas; the machines are there.
  explicit Deployment(World& world);

  // Those on a machine.
  std::vector<Replica*> ReplicasOn(const Machine& machine) const;
  // Null: nobody leads.
  Replica* FindLeader() const;
  // What it lacks; empty: nothing.
  std::string Unsettled() const;
  // The world is over.
  void End();
  bool ended() const;

 private:
  void LookAfterReplicas();
  void DeleteLost();
  void MakeMissing();
  void ForgetFormer();
  bool IsLost(const Replica& replica) const;
  bool LearnsOfItsEnd(const Replica& replica) const;
  // Where the scheduler would put one; null: nowhere.
  Machine* FindPlace() const;
  void MakeReplica(Machine& machine);

  World& world_;
  size_t made_ = 0, being_made_ = 0;
  std::map<const Replica*, WorldTime> lost_since_;
  std::vector<std::unique_ptr<Replica>> former_;  // what is on its way to them may still arrive
};

}  // namespace lunkeeper::fencing::sim
