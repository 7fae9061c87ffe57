#pragma once
// Deliberate mistakes, each of which the simulator has to catch: the proof that it can fail. They are made in
// the simulated world and in the clients through which the product sees it; the product itself has no switch
// for any of them. Mistakes in the core, the runner and the agent themselves are made in copies of the tree
// (e2e/mutants).

#include <bitset>
#include <string>
#include <utility>
#include <vector>

namespace lunkeeper::fencing::sim {

enum class Mutant {
  // In the array.
  kNoTermCheck,
  kUnfenceAnyGeneration,
  kFenceWithoutDrain,
  kFenceNotStored,
  kGrantToFencedNode,
  kFenceKeepsGrants,
  kRestoredCopyServes,
  kTargetReused,
  kDrainGivesUp,
  // On the node.
  kReplayWithoutReset,
  kDeviceRevives,
  kAckBeforeLanding,
  kSaysCleanTooEarly,
  kBlockedIsSilent,
  // Between the product and the world.
  kFenceNotVerified,
  kDeleteBeforeFence,
  kDeleteAnyUid,
  kStaleLeaderActs,
  kDeadArrayIsSilence,
  kStorageEvidenceIgnored,
  kProbeForged,
  kKubeletIgnored,
  kOptOutIgnored,
  kBudgetIgnored,
  kTaintForgotten,
  kOrphanFenceIgnored,
  kRecordNotRemoved,
  kFencesPartOfTheVolumes,
  kCleanForged,
  kChargeForgotten,
  kVotesIgnored,
  kSightsIgnored,
  kSightsForged,
  kForeignIgnored,
  kPauseIgnored,
  kSteadyClockSteps,
  kCompactionUnseen,
  kLeaseKept,
  kEndInOrderIsAlive,
  kFinalizersHold,
  kCount
};

using Mutants = std::bitset<static_cast<size_t>(Mutant::kCount)>;

// Every mutant with its name on the command line.
const std::vector<std::pair<Mutant, std::string>>& AllMutants();

}  // namespace lunkeeper::fencing::sim
