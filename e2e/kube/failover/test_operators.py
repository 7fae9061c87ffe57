"""Pods that an operator owns directly, as CloudNativePG's, Strimzi's and KubeVirt's: `ownerKinds` says whose
are moved.
"""

import pytest

from kube.failover.operators import ANOTHER, CLOUDNATIVE_PG, KUBEVIRT, STRIMZI, Operators, defined, place
from kube.failover.watching import OVER_SECONDS
from kube.workloads import wait_for_event

DEFAULT = ["StatefulSet", "ReplicaSet", "Job"]
LISTED = [CLOUDNATIVE_PG, STRIMZI, KUBEVIRT]


@pytest.fixture
def operators(workloads):
    with defined(workloads.kubectl, [*LISTED, ANOTHER]), Operators(workloads) as operators:
        yield operators


@pytest.mark.timeout(600)
def test_pods_of_listed_kinds_move_and_one_of_another_is_told_what_to_list(
    operators, failover, change_settings
):
    """Both other settings would move it too: the kind without its group, and any kind. The latter comes while
    the node is still dead, as from a person who has read the event.
    """
    node = failover.without_controller()
    change_settings(ownerKinds=[*DEFAULT, *(kind.full for kind in LISTED)])
    placed = place(failover, operators, [*LISTED, ANOTHER], node)
    another = placed.pop(ANOTHER)
    uid = another.uid()
    another.host.power_off()
    for each in placed.values():
        each.moves()
    wait_for_event(operators.workloads, another.writer.pod, "NotFailedOver", f"its owner is a {ANOTHER.full}")
    assert another.stays(uid)
    change_settings(ownerKinds=["*"])
    another.moves()
    for each in (*placed.values(), another):
        each.writer.goes_on(seconds=OVER_SECONDS)
        each.lost_nothing()
