"""A Node object is not the machine: the object is deleted, or another machine takes the name."""

import pytest

from cluster import faults, network
from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS, OVER_SECONDS, SLOW_SECONDS

GIVEN_UP_SECONDS = 240  # Kubernetes waits about a minute before it deletes the pods of a deleted node


@pytest.mark.timeout(600)
def test_a_live_nodes_object_is_deleted(place, failover):
    """Kubernetes moves its pods, one writer at a time. A restarted kubelet registers the node again."""
    db = place()
    failover.kubectl("delete", "node", db.node)
    db.moves(seconds=GIVEN_UP_SECONDS)
    db.lost_nothing()
    failover.end()
    place("again", node=db.node).lost_nothing()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dead_nodes_object_is_deleted(place, failover, when):
    """Before its failover or after it.

    The NodeFence is deleted; the fence stays until the machine returns.
    """
    db = place()
    node_id = failover.node_id(db.node)
    db.host.power_off()
    if when == "after":
        db.moves()
        failover.wait_until_fenced(db.node)
    failover.kubectl("delete", "node", db.node)
    db.moves(seconds=SLOW_SECONDS)
    wait_until(
        lambda: failover.fence(db.node) is None,
        OVER_SECONDS,
        lambda: f"the NodeFence goes\n{failover.tell()}",
        pause=0.3,
    )
    assert node_id in failover.fenced_at_the_array()
    db.lost_nothing()
    db.host.boot()
    failover.end()
    failover.wait_until_unfenced_at_the_array(node_id)
    place("again", node=db.node).lost_nothing()


@pytest.mark.timeout(600)
def test_a_new_machine_works_under_the_name_of_one_that_lives_in_a_partition(place, failover):
    """The old machine still runs and reaches the storage again, but nothing else.

    It stays fenced under any name.
    """
    db = place(node="node-2")
    old = failover.node_id(db.node)
    network.plug(db.host.cluster, db.host.name, False)
    wrote_nothing = db.now_a_zombie()
    db.moves()
    failover.wait_until_fenced(db.node)
    failover.kubectl("delete", "node", db.node)
    with failover.joined("node-4", known_as=db.node) as new:
        assert new != old
        other = place("other", node=db.node)
        storage = failover.cluster.storage
        faults.cut_off(
            db.host,
            hosts=[host for host in failover.cluster.hosts().values() if host not in (storage, db.host)],
        )
        network.plug(db.host.cluster, db.host.name, True)
        other.writer.goes_on(more=2000)
        db.writer.goes_on(more=2000)
        assert old in failover.fenced_at_the_array()
        assert new not in failover.fenced_at_the_array()
        assert failover.taint(db.node) is None
        wrote_nothing()
        db.lost_nothing()
        other.lost_nothing()
        other.workloads.delete("statefulset", "other")
        network.plug(db.host.cluster, db.host.name, False)
    wait_until(
        lambda: failover.kubectl.find("node", db.node) is None, MOVES_SECONDS, "the name is free again"
    )
    failover.end()
    failover.wait_until_unfenced_at_the_array(old)
