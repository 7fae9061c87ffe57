#include "fencing/sim/mutants.h"

namespace lunkeeper::fencing::sim {

const std::vector<std::pair<Mutant, std::string>>& AllMutants() {
  static const std::vector<std::pair<Mutant, std::string>> kAll = {
      {Mutant::kNoTermCheck, "no-term-check"},
      {Mutant::kUnfenceAnyGeneration, "unfence-any-generation"},
      {Mutant::kFenceWithoutDrain, "fence-without-drain"},
      {Mutant::kFenceNotStored, "fence-not-stored"},
      {Mutant::kGrantToFencedNode, "grant-to-fenced-node"},
      {Mutant::kFenceKeepsGrants, "fence-keeps-grants"},
      {Mutant::kRestoredCopyServes, "restored-copy-serves"},
      {Mutant::kTargetReused, "target-reused"},
      {Mutant::kDrainGivesUp, "drain-gives-up"},
      {Mutant::kReplayWithoutReset, "replay-without-reset"},
      {Mutant::kDeviceRevives, "device-revives"},
      {Mutant::kAckBeforeLanding, "ack-before-landing"},
      {Mutant::kSaysCleanTooEarly, "says-clean-too-early"},
      {Mutant::kBlockedIsSilent, "blocked-is-silent"},
      {Mutant::kFenceNotVerified, "fence-not-verified"},
      {Mutant::kDeleteBeforeFence, "delete-before-fence"},
      {Mutant::kDeleteAnyUid, "delete-any-uid"},
      {Mutant::kStaleLeaderActs, "stale-leader-acts"},
      {Mutant::kDeadArrayIsSilence, "dead-array-is-silence"},
      {Mutant::kStorageEvidenceIgnored, "storage-evidence-ignored"},
      {Mutant::kProbeForged, "probe-forged"},
      {Mutant::kKubeletIgnored, "kubelet-ignored"},
      {Mutant::kOptOutIgnored, "opt-out-ignored"},
      {Mutant::kBudgetIgnored, "budget-ignored"},
      {Mutant::kTaintForgotten, "taint-forgotten"},
      {Mutant::kOrphanFenceIgnored, "orphan-fence-ignored"},
      {Mutant::kRecordNotRemoved, "record-not-removed"},
      {Mutant::kFencesPartOfTheVolumes, "fences-part-of-the-volumes"},
      {Mutant::kCleanForged, "clean-forged"},
      {Mutant::kChargeForgotten, "charge-forgotten"},
      {Mutant::kVotesIgnored, "votes-ignored"},
      {Mutant::kSightsIgnored, "sights-ignored"},
      {Mutant::kSightsForged, "sights-forged"},
      {Mutant::kForeignIgnored, "foreign-ignored"},
      {Mutant::kPauseIgnored, "pause-ignored"},
      {Mutant::kSteadyClockSteps, "steady-clock-steps"},
      {Mutant::kCompactionUnseen, "compaction-unseen"},
      {Mutant::kLeaseKept, "lease-kept"},
      {Mutant::kEndInOrderIsAlive, "end-in-order-is-alive"},
      {Mutant::kFinalizersHold, "finalizers-hold"},
  };
  return kAll;
}

}  // namespace lunkeeper::fencing::sim
