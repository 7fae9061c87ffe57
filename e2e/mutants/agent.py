"""Mutants of the agent: the fences that a node keeps, its heartbeats and their times, its looks."""

from mutants.mutant import COORDINATOR_TEST, Mutant

FOLDER = "fencing/agent"


def agent(name: str, harm: str, file: str, before: str, after: str, program: str, tests: str) -> Mutant:
    return Mutant(name, harm, f"{FOLDER}/{file}", before, after, program, tests)


AGENT = [
    agent(
        "newer-grants-fail",
        "a fence that is over ends the I/O of a volume that the node has anew",
        "heartbeat_sender.cc",
        "&generation) && generation > fence;",
        "&generation) && generation > fence + 1000;",
        COORDINATOR_TEST,
        "an old fence that is told of*",
    ),
    agent(
        "older-fence-counts",
        "an answer that comes late takes the place of the fence in force",
        "heartbeat_sender.cc",
        "if (reported.generation > fence.generation) return false;",
        "",
        COORDINATOR_TEST,
        "a late answer about an old fence*",
    ),
    agent(
        "newer-fence-enforced-unseen",
        "a fence that comes while an older one is enforced ends no I/O",
        "heartbeat_sender.cc",
        "if (reported_fences_[array].generation == generation) reported",
        "if (reported_fences_[array].generation >= generation) reported",
        COORDINATOR_TEST,
        "a fence that comes while an older one*",
    ),
    agent(
        "clean-before-a-look",
        "a node that has not seen its devices since it started is let in again",
        "heartbeat_sender.cc",
        "if (!observed_) heartbeat.present.insert(",
        "if (false) heartbeat.present.insert(",
        COORDINATOR_TEST,
        "a node that was told of a fence*",
    ),
    agent(
        "fence-tried-once",
        "a data path that does not answer once goes on with the I/O of fenced volumes",
        "heartbeat_sender.cc",
        "std::string(failed.message())}});\n        return false;",
        "std::string(failed.message())}});\n        return true;",
        COORDINATOR_TEST,
        "a data path that does not answer is told again*",
    ),
    agent(
        "silent-data-path-is-well",
        "volumes behind a data path that does not answer seem to work",
        "heartbeat_sender.cc",
        "        failing_ = present_;\n",
        "",
        COORDINATOR_TEST,
        "a data path that cannot be asked*",
    ),
    agent(
        "one-portal-is-the-array",
        "pods are moved off a node that reaches its array by the other network",
        "heartbeat_sender.cc",
        "(lost(device.portal) && std::ranges::all_of(device.other_portals, lost))",
        "lost(device.portal)",
        COORDINATOR_TEST,
        "I/O that waits is failing only when*",
    ),
    agent(
        "kubelet-always-well",
        "a node never says that its kubelet hangs",
        "heartbeat_sender.cc",
        "      kubelet_ok_ = kubelet_ok;\n",
        "      kubelet_ok_ = kubelet_ok || true;\n",
        COORDINATOR_TEST,
        "a node says that its kubelet hangs*",
    ),
    agent(
        "silent-part-is-hung",
        "a node with a wrong address of its kubelet's page counts as one whose kubelet hangs",
        "kubelet_health.cc",
        "const bool hung = part.known && part.missed >= misses_;",
        "const bool hung = part.missed >= misses_;",
        f"{FOLDER}/kubelet_health_test",
        "*",
    ),
    agent(
        "removed-for-ever",
        "an array that is added back has its new volumes failed",
        "removed_arrays.cc",
        "named = std::exchange(named_, {});",
        "named = named_;",
        f"{FOLDER}/path_watch_test",
        "what a node has of a removed array*",
    ),
    agent(
        "one-lost-probe-is-a-lost-path",
        "pods are moved for a lost packet",
        "path_watch.cc",
        "NoteResult(portal, IsAnswer(result))",
        "NoteResult(portal, result == ProbeResult::kNoRoute)",
        f"{FOLDER}/path_watch_test",
        "a portal that refuses is reached*",
    ),
    agent(
        "gives-up-at-the-first-replica",
        "a mount fails when the replica that is asked first does not answer",
        "replica_table.cc",
        "if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return true;",
        "",
        f"{FOLDER}/replicas_test",
        "a replica that is leaving is left*",
    ),
]
