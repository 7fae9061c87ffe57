#pragma once
// How a replica carries out what its core asks for: each action becomes a call to the API server, an array or
// a node, over the world's network, and the answer goes back to the replica as an event. An answer for a
// former life of the replica's process is dropped. One thread; the replica outlives it.

#include <functional>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

// How long a replica waits for an answer.
constexpr Span kCall = 3_s, kFenceCall = 15_s;

class ActionRunner {
 public:
  ActionRunner(World& world, Replica& replica) : world_(world), replica_(replica) {}

  void Run(const Action& action);

 private:
  void Run(uint64_t id, const WriteLease& call);
  void Run(uint64_t id, const BeginTerm& call);
  void Run(uint64_t id, const Probe& call);
  void Run(uint64_t id, const ReadKubelet& call);
  void Run(uint64_t id, const AskReplicas& call);
  void Run(uint64_t id, const PutNodeFence& call);
  void Run(uint64_t id, const RemoveNodeFence& call);
  void Run(uint64_t id, const FenceNode& call);
  void Run(uint64_t id, const UnfenceNode& call);
  void Run(uint64_t id, const SetTaint& call);
  void Run(uint64_t id, const DeletePod& call);
  void Run(uint64_t id, const ChargeVolume& call);
  void Run(uint64_t id, const Notify& call);
  void Run(uint64_t, const Report&) {}
  // Calls the API server, with its errors; `serve` does there what is asked.
  void CallApi(uint64_t id, std::function<Done()> serve);
  void Answer(uint64_t id, Outcome outcome, Done done = {});

  World& world_;
  Replica& replica_;
};

}  // namespace lunkeeper::fencing::sim
