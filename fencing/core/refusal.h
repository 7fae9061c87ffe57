#pragma once
// Why a failover is not begun, or a request for one not carried out. The word is for programs: metrics count
// by it. What a person reads is the Report's text.

namespace lunkeeper::fencing {

enum class Refusal {
  kPaused,
  kExempt,
  kMass,
  kBudget,
  kHeardElsewhere,
  kDryRun,
  kUnread,
  kUnrecorded,
  kLeftAlone,
  kUnknownNode
};

constexpr const char* ToWord(Refusal refusal) {
  switch (refusal) {
    case Refusal::kPaused:
      return "paused";
    case Refusal::kExempt:
      return "exempt";
    case Refusal::kMass:
      return "mass";
    case Refusal::kBudget:
      return "budget";
    case Refusal::kHeardElsewhere:
      return "heard-elsewhere";
    case Refusal::kDryRun:
      return "dry-run";
    case Refusal::kUnread:
      return "kubelet-unread";
    case Refusal::kUnrecorded:
      return "unrecorded";
    case Refusal::kLeftAlone:
      return "left-alone";
    case Refusal::kUnknownNode:
      return "unknown-node";
  }
  return "";
}

// Whether a limit holds the failover back, and it would begin without it. The others are no failover at all.
constexpr bool IsLimit(Refusal refusal) {
  switch (refusal) {
    case Refusal::kPaused:
    case Refusal::kExempt:
    case Refusal::kMass:
    case Refusal::kBudget:
    case Refusal::kHeardElsewhere:
    case Refusal::kUnread:
    case Refusal::kUnrecorded:
      return true;
    case Refusal::kDryRun:
    case Refusal::kLeftAlone:
    case Refusal::kUnknownNode:
      return false;
  }
  return false;
}

}  // namespace lunkeeper::fencing
