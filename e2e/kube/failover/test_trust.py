"""What `partitioned` makes of a node that Kubernetes and the controllers have lost, and whose I/O goes on."""

import pytest

from cluster import faults
from cluster.kubectl import condition
from harness.cleanup import wait_until
from kube.failover.watching import COORDINATOR_PORT, MOVES_SECONDS

GRACE_SECONDS = 10
UNREADY_SECONDS = 150  # Kubernetes waits for 50 s


@pytest.mark.timeout(600)
def test_such_a_node_is_fenced_only_if_kubernetes_is_trusted(place, failover, change_settings):
    """By default its I/O counts for more, however long ago the grace was over."""
    node = failover.without_controller()
    db = place(node=node)
    uid = db.uid()
    change_settings(partitionGraceSeconds=GRACE_SECONDS)
    others = [host for name, host in failover.cluster.nodes.items() if name != node]
    faults.cut_off(db.host, hosts=[failover.cluster.control, *others], ports=[COORDINATOR_PORT])
    wait_until(
        lambda: not condition(failover.kubectl.get("node", node), "Ready"),
        UNREADY_SECONDS,
        lambda: f"{node} is not ready for Kubernetes\n{failover.tell()}",
        pause=0.5,
    )
    failover.stays_quiet(1.5 * GRACE_SECONDS, lambda: db.stays(uid))
    db.writer.goes_on()
    change_settings(partitioned="trust-kubernetes", partitionGraceSeconds=GRACE_SECONDS)
    fence = failover.wait_until_fenced(node, GRACE_SECONDS + 2 * MOVES_SECONDS)
    assert "Kubernetes, which is trusted" in fence["spec"]["cause"], fence
    db.moves()
    faults.heal(db.host)
    failover.wait_until_over(node)
    db.writer.goes_on()
    db.lost_nothing()
