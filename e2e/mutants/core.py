"""Mutants of the core: what it decides."""

from mutants.mutant import Mutant

SCENARIO_TEST = "fencing/core/fencing_scenario_test"


def core(name: str, harm: str, file: str, before: str, after: str) -> Mutant:
    """One that a golden scenario catches."""
    return Mutant(name, harm, f"fencing/core/{file}", before, after, SCENARIO_TEST, "every golden scenario*")


CORE = [
    core(
        "together-ignored",
        "channels that fell silent one after the other count as one death",
        "classify.cc",
        "         signals.together && signals.kernel",
        "         signals.kernel",
    ),
    core(
        "renewal-ignored",
        "a node whose kubelet renewed its lease after the silence began is dead all the same",
        "classify.cc",
        "signals.kernel == Kernel::kUnanswered && !signals.renewed_since;",
        "signals.kernel == Kernel::kUnanswered;",
    ),
    core(
        "unmet-is-met",
        "a new leader fences nodes that have not found it yet",
        "classify.cc",
        "signals.met ? settings.slow_silence : settings.never_met_silence",
        "settings.slow_silence",
    ),
    core(
        "others-not-needed",
        "where nobody is heard any more at an array, all of its nodes are silent",
        "signals.cc",
        "settings_.silence && !CanTellOf(id, side, now)) continue;",
        "settings_.silence && false) continue;",
    ),
    core(
        "uncounted-is-silent",
        "what a tgtd that hangs cannot count is taken for no I/O",
        "signals.cc",
        "signals.io_seen_for = std::min(signals.io_seen_for, seen_for);",
        "",
    ),
    core(
        "old-fences-count",
        "a new leader goes by a fence that the one before has lifted",
        "known_arrays.cc",
        "state->second.sure.contains(node)",
        "state->second.fences.contains(node)",
    ),
    core(
        "no-mass",
        "one fault of many nodes has them fenced, one after the other",
        "safety_limits.cc",
        "return sick >= kFewestOfAMass && sick",
        "return false && sick",
    ),
    core(
        "no-pause",
        "over the budget nodes are fenced without the time in which a person could stop it",
        "safety_limits.cc",
        "if (now - latest_decision_ < settings_.one_by_one_pause)",
        "if (false)",
    ),
    core(
        "self-test-passes",
        "a leader that is cut off itself goes on over its budget",
        "safety_limits.cc",
        "if (heard * 100 < others * settings_.self_test_percent)",
        "if (heard * 100 < others * 0)",
    ),
    core(
        "stall-forgotten",
        "a leader that stood still takes the silence of that time for that of the nodes",
        "evidence.cc",
        "if (!last_ || now - *last_ > settings_.stall) window_ = now;",
        "if (!last_) window_ = now;",
    ),
    core(
        "old-boot-is-news",
        "a late heartbeat of the boot before makes a dead node look alive",
        "evidence.cc",
        "return known == node.other_boots.end() || heartbeat.sequence > known->second;",
        "return known == node.other_boots.end() || heartbeat.sequence > 0;",
    ),
    core(
        "foreign-volumes-move",
        "a pod is moved whose other volume nobody has fenced",
        "eligibility.cc",
        'if (pod.foreign_volumes) return "it has volumes of another driver too";',
        "",
    ),
    core(
        "no-taint-first",
        "a pod's replacement is scheduled on the node that is fenced",
        "evacuate.cc",
        "if (seen.fences.empty() || !IsTainted(state, seen)) return;",
        "if (seen.fences.empty()) return;",
    ),
    core(
        "held-back-moves",
        "a volume of which nodes die goes on from one node to the next",
        "eligibility.cc",
        "if (cluster.IsHeldBack(volume)) return",
        "if (false && cluster.IsHeldBack(volume)) return",
    ),
    core(
        "sharers-move",
        "a pod is moved from beside one that stays and writes the same volume",
        "eligibility.cc",
        "if (SharesVolume(*pod, staying)) {",
        "if (false && SharesVolume(*pod, staying)) {",
    ),
    core(
        "companions-part",
        "a pod is moved from beside one that stays, and waits for a node for good",
        "eligibility.cc",
        "auto why = companions.WhyAlone(pod, leaving);",
        "std::string why;",
    ),
    core(
        "all-plugins-blamed",
        "a leader that is cut off itself keeps new pods off most nodes",
        "plugin_taint.cc",
        "plugins.silent >= kFewestOfAMass",
        "plugins.silent > 10000",
    ),
    core(
        "plugin-taint-stays",
        "a node whose plugin is back takes no new pods for ever",
        "plugin_taint.cc",
        "(heard && !node.node_id.empty())",
        "(heard && node.node_id.empty())",
    ),
]
