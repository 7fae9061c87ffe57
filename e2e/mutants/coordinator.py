"""Mutants of what gives nodes their grants, at both ends: the simulator catches them."""

from mutants.mutant import Mutant

GRANTS_TEST = "fencing/sim/fencing_sim_grants_test"

COORDINATOR = [
    Mutant(
        "strangers-get-volumes",
        "a node that was broken into gets the volumes of others",
        "fencing/coordinator/node_requests.cc",
        "  RETURN_IF_ERROR(CheckUse(wanted.node, wanted.volume));\n",
        "",
        GRANTS_TEST,
        "a node gets no volume*",
    ),
    Mutant(
        "unasked-replica-has-failed",
        "a node asks the replica that does not reach an array first for ever",
        "fencing/agent/replica_table.cc",
        "      if (left() <= absl::ZeroDuration()) break;\n",
        "",
        GRANTS_TEST,
        "a replica that does not reach an array*",
    ),
]
