"""A node loses the path to its storage while its volumes are idle: no I/O fails that could tell of it."""

from types import SimpleNamespace

from cluster import faults
from cluster.storage import PORTAL_PORT
from kube.failover.watching import MOVES_SECONDS, Placed
from kube.workloads import block_container

MARK = "written before the path was lost"
UNREAD = "bs=4k count=1 skip=1000"  # no cache has it
WAIT_SECONDS = 20  # the session takes ten to find that nothing answers


def place_idle(failover, workloads, node):
    """A pod with a raw device, so that no file system does anything either; and one without a volume."""
    claim = {"size": "16Mi", "volumeMode": "Block"}
    with workloads.new_pods_go_to(node):
        workloads.stateful_set("idle", claim=claim, containers=[block_container()])
        workloads.stateful_set("web", claims=False)
        pods = [Placed(failover, workloads, SimpleNamespace(pod=f"{name}-0")) for name in ("idle", "web")]
    workloads.shell("idle-0", f"echo {MARK} | dd of=/dev/data bs=4k conv=sync,fsync")
    workloads.kubectl("label", "pod", "web-0", *workloads.here, "lunkeeper.io/failover=always")
    return pods


def test_an_idle_pod_moves_off_a_node_that_lost_the_path_and_no_other(place, failover, workloads):
    """The node's heartbeats still come by the network. A pod without a volume needs no path to one."""
    node, elsewhere = failover.without_controller(), failover.leader()
    idle, web = place_idle(failover, workloads, node)
    other = place("other", node=elsewhere)
    uids = web.uid(), other.uid()
    faults.cut_off(idle.host, ports=[PORTAL_PORT])
    idle.runs_elsewhere(seconds=2 * MOVES_SECONDS)
    assert MARK in workloads.shell("idle-0", "head -c 4096 /dev/data")
    fences = failover.fences()
    assert set(fences) == {node} and "storage path is lost" in fences[node]["spec"]["cause"], fences
    faults.heal(idle.host)
    failover.wait_until_over(node)
    assert web.stays(uids[0]) and other.stays(uids[1])
    other.writer.goes_on()
    other.lost_nothing()


def test_with_wait_it_stays_until_it_does_io(failover, workloads, change_settings):
    """Also when its session has found the portal silent."""
    idle, _ = place_idle(failover, workloads, failover.without_controller())
    uid = idle.uid()
    change_settings(idlePods="wait")
    faults.cut_off(idle.host, ports=[PORTAL_PORT])
    failover.stays_quiet(WAIT_SECONDS, lambda: idle.stays(uid))
    workloads.shell("idle-0", f"dd if=/dev/data {UNREAD} >/dev/null 2>&1 </dev/null &")
    idle.runs_elsewhere(seconds=2 * MOVES_SECONDS)
    assert MARK in workloads.shell("idle-0", "head -c 4096 /dev/data")
    faults.heal(idle.host)
    failover.wait_until_over(idle.node)
