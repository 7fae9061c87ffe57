"""A failover that a person asks for."""

from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS


def ask(failover, name, **spec):
    failover.kubectl.apply({"apiVersion": "lunkeeper.io/v1alpha1", "kind": "NodeFence", "metadata": {"name": name}, "spec": spec})


def test_a_node_fence_made_by_hand_moves_a_healthy_nodes_pods_and_is_lifted_by_hand(place, failover):
    db = place()
    ask(failover, failover.instance(db.node), cause="a test")
    db.moves()
    failover.wait_until_fenced(db.node)
    db.writer.goes_on(more=500)
    failover.kubectl("delete", "nodefence", failover.instance(db.node), "--wait=false")
    failover.wait_until_over(db.node)
    db.lost_nothing()


def test_a_node_fence_for_nobody_changes_nothing(place, failover):
    db = place()
    uid = db.uid()
    ask(failover, "nobody.0123456789abcdef", cause="a test")
    try:
        wait_until(lambda: failover.kubectl.find("nodefence", "nobody.0123456789abcdef"), MOVES_SECONDS, "it is there")
        db.writer.goes_on(more=1000)
        assert db.stays(uid)
        assert all(failover.taint(node) is None for node in failover.cluster.nodes)
    finally:
        failover.kubectl("delete", "nodefence", "nobody.0123456789abcdef", "--timeout=60s", seconds=70)
    db.lost_nothing()
