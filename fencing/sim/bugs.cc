#include "fencing/sim/bugs.h"

namespace lunkeeper::fencing::sim {

const std::vector<std::pair<Bug, std::string>>& AllBugs() {
  static const std::vector<std::pair<Bug, std::string>> kAll = {
      {Bug::kNoTermCheck, "no-term-check"},
      {Bug::kUnfenceAnyGeneration, "unfence-any-generation"},
      {Bug::kFenceWithoutDrain, "fence-without-drain"},
      {Bug::kFenceNotStored, "fence-not-stored"},
      {Bug::kGrantToFencedNode, "grant-to-fenced-node"},
      {Bug::kFenceKeepsGrants, "fence-keeps-grants"},
      {Bug::kRestoredCopyServes, "restored-copy-serves"},
      {Bug::kTargetReused, "target-reused"},
      {Bug::kReplayWithoutReset, "replay-without-reset"},
      {Bug::kDeviceRevives, "device-revives"},
      {Bug::kAckBeforeLanding, "ack-before-landing"},
      {Bug::kSaysCleanTooEarly, "says-clean-too-early"},
      {Bug::kFenceNotVerified, "fence-not-verified"},
      {Bug::kDeleteBeforeFence, "delete-before-fence"},
      {Bug::kDeleteAnyUid, "delete-any-uid"},
      {Bug::kStaleLeaderActs, "stale-leader-acts"},
      {Bug::kDeadArrayIsSilence, "dead-array-is-silence"},
      {Bug::kStorageEvidenceIgnored, "storage-evidence-ignored"},
      {Bug::kProbeForged, "probe-forged"},
      {Bug::kKubeletIgnored, "kubelet-ignored"},
      {Bug::kOptOutIgnored, "opt-out-ignored"},
      {Bug::kBudgetIgnored, "budget-ignored"},
      {Bug::kTaintForgotten, "taint-forgotten"},
      {Bug::kOrphanFenceIgnored, "orphan-fence-ignored"},
      {Bug::kRecordNotRemoved, "record-not-removed"},
      {Bug::kFencesPartOfTheVolumes, "fences-part-of-the-volumes"},
      {Bug::kCleanForged, "clean-forged"},
  };
  return kAll;
}

}  // namespace lunkeeper::fencing::sim
