"""The network breaks between a node and some of the others."""

import time
from types import SimpleNamespace

import pytest

from cluster import faults, network
from kube.failover.watching import COORDINATOR_PORT, MOVES_SECONDS, Placed

QUIET_SECONDS = 20  # longer than a fence takes for any fault
FLAPS = 8


def test_from_the_controllers_only_nothing_happens(place, failover):
    db = place()
    uid = db.uid()
    faults.cut_off(db.host, ports=[COORDINATOR_PORT])
    failover.stays_quiet(QUIET_SECONDS, lambda: db.stays(uid))
    db.writer.goes_on()
    faults.heal(db.host)
    failover.stays_quiet(5, lambda: db.stays(uid))
    db.lost_nothing()


def test_from_the_control_plane_only_the_workload_goes_on(place, failover):
    """Its kubelet is silent but its I/O works. Kubernetes would give up a healthy node."""
    db = place()
    uid = db.uid()
    faults.cut_off(db.host, hosts=[failover.cluster.control])
    failover.stays_quiet(QUIET_SECONDS, lambda: db.stays(uid))
    db.writer.goes_on()
    faults.heal(db.host)
    failover.wait_until_ready(db.node)
    failover.stays_quiet(5, lambda: db.stays(uid))
    db.lost_nothing()


def test_from_all_but_the_storage_an_idle_pod_is_held(workloads, failover):
    """No I/O, a silent kubelet, and a kernel that does not answer: only its heartbeats on the array show that
    it lives.
    """
    workloads.stateful_set("idle")
    idle = Placed(failover, workloads, SimpleNamespace(pod="idle-0"))
    uid = idle.uid()
    failover.wait_for_classification(idle.node, "heartbeat on array")
    others = [host for name, host in failover.cluster.nodes.items() if name != idle.node]
    faults.cut_off(idle.host, hosts=[failover.cluster.control, *others])
    failover.wait_for_classification(idle.node, "cut off from the control plane")
    failover.stays_quiet(QUIET_SECONDS, lambda: idle.stays(uid))
    faults.heal(idle.host)
    failover.wait_until_ready(idle.node)
    failover.stays_quiet(5, lambda: idle.stays(uid))


@pytest.mark.brief
def test_from_the_storage_only_the_pod_moves(place, failover):
    leading = failover.leader()
    loses_its_storage_path(
        failover, place(node=next(name for name in failover.cluster.nodes if name != leading))
    )


def test_from_the_storage_only_the_pod_moves_from_the_leaders_own_node(place, failover):
    """The leader then sees no array, and resigns in favour of a controller that does."""
    loses_its_storage_path(failover, place(node=failover.leader()))


def loses_its_storage_path(failover, db):
    faults.cut_off(db.host, hosts=[failover.cluster.storage])
    db.moves(seconds=3 * MOVES_SECONDS)
    faults.heal(db.host)
    failover.wait_until_over(db.node)
    db.lost_nothing()


def test_from_everything_the_pod_moves_and_the_zombie_cleans_up(place, failover):
    """The cable is pulled. The containers of the node keep running."""
    db = place()
    network.plug(db.host.cluster, db.host.name, False)
    wrote_nothing = db.now_a_zombie()
    db.moves()
    failover.wait_until_fenced(db.node)
    network.plug(db.host.cluster, db.host.name, True)
    failover.wait_until_over(db.node)
    db.writer.goes_on(more=1000)
    wrote_nothing()
    db.lost_nothing()


def test_a_moment_without_a_network_is_nothing(place, failover):
    db = place()
    uid = db.uid()
    for _ in range(3):
        network.plug(db.host.cluster, db.host.name, False)
        failover.stays_quiet(1.2)
        network.plug(db.host.cluster, db.host.name, True)
        failover.stays_quiet(4, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


@pytest.mark.timeout(600)
def test_a_flapping_node_settles(place, failover):
    """The network fails every few seconds.

    The node is fenced at most once each time, and its pod moves to a stable node.
    """
    db = place()
    seen = set()

    def watch(seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            seen.update(fence["metadata"]["uid"] for fence in failover.kubectl.items("nodefences"))
            time.sleep(0.3)

    for _ in range(FLAPS):
        network.plug(db.host.cluster, db.host.name, False)
        watch(4)
        network.plug(db.host.cluster, db.host.name, True)
        watch(4)
    failover.wait_until_over(db.node)
    failover.wait_until_ready(db.node)
    assert 1 <= len(seen) <= FLAPS
    failover.stays_quiet(QUIET_SECONDS)
    db.writer.goes_on(more=1000)
    db.lost_nothing()
