"""Parts of a node die or hang while its workload is healthy."""

import contextlib
import time
from types import SimpleNamespace

from cluster import deploy, faults
from cluster.faults import find_processes, kill_all
from harness.cleanup import wait_until
from harness.processes import kill_pid
from kube.failover.watching import PLUGIN_TAINT, SLOW_SECONDS, Placed

PLUGIN = ("lunkeeper", "serve", "--mode=node")
PROBATION_SECONDS = 60


@contextlib.contextmanager
def undisturbed(place, failover):
    """(a writer, a function that checks for some seconds that its pod stays); finally the writer has lost
    nothing.
    """
    db = place()
    uid = db.uid()
    yield db, lambda seconds: failover.stays_quiet(seconds, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


def test_a_killed_plugin_is_no_dead_node(place, failover):
    with undisturbed(place, failover) as (db, stays):
        kill_all(find_processes(db.host, *PLUGIN))
        stays(12)


def test_a_crash_looping_plugin_is_no_dead_node(place, failover):
    """It is killed at each start, for longer than it takes to declare a node dead."""
    db = place()
    uid = db.uid()

    def kill():
        for pid in find_processes(db.host, *PLUGIN):
            kill_pid(pid)
        return db.stays(uid)

    failover.stays_quiet(30, kill)
    db.writer.goes_on()
    failover.wait_until_plugins_are_ready(seconds=180)
    db.lost_nothing()


def test_a_hung_plugin_is_no_dead_node(place, failover):
    with undisturbed(place, failover) as (db, stays), faults.stopped(find_processes(db.host, *PLUGIN)):
        stays(15)
        db.writer.goes_on()


def test_a_plugin_that_hangs_while_its_volumes_are_idle_is_no_dead_node(workloads, failover):
    """No heartbeat and no I/O: only its kernel and its kubelet show that the node lives."""
    workloads.stateful_set("idle")
    idle = Placed(failover, workloads, SimpleNamespace(pod="idle-0"))
    uid = idle.uid()
    workloads.shell("idle-0", "echo kept > /data/file && sync")
    with faults.stopped(find_processes(idle.host, *PLUGIN)):
        failover.wait_for_classification(idle.node, "its plugin hangs or restarts")
        failover.stays_quiet(30, lambda: idle.stays(uid))
        assert workloads.shell("idle-0", "cat /data/file").strip() == "kept"
    failover.stays_quiet(5, lambda: idle.stays(uid))
    workloads.shell("idle-0", "echo more >> /data/file && sync")


def test_a_node_whose_plugin_hangs_takes_no_new_pods_until_it_is_back(place, failover, workloads):
    """The pod would rather run on that node than on another."""
    db = place()
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [db.node]}]}
    rather = [{"weight": 100, "preference": node}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rather}}
    workloads.claim("data")
    with faults.stopped(find_processes(db.host, *PLUGIN)):
        wait_until(
            lambda: failover.taint(db.node, PLUGIN_TAINT) is not None,
            SLOW_SECONDS,
            lambda: f"{db.node} is tainted\n{failover.tell()}",
        )
        workloads.pod("new", "data", affinity=affinity)
        assert workloads.wait_for_pod("new")["spec"]["nodeName"] != db.node
    workloads.delete("pod", "new")
    failover.wait_until_over(db.node)
    workloads.pod("new", "data", affinity=affinity)
    assert workloads.wait_for_pod("new")["spec"]["nodeName"] == db.node
    db.writer.goes_on()
    db.lost_nothing()


def test_an_upgrade_moves_nothing(place, failover):
    """Controllers and node plugins are replaced one by one."""
    with undisturbed(place, failover) as (db, stays):
        changed = {"podAnnotations": {"test": db.workloads.namespace}}
        deploy.install(failover.cluster, controller=changed, node=changed)
        stays(8)


def test_a_killed_kubelet_and_a_killed_runtime_are_no_dead_node(place, failover):
    with undisturbed(place, failover) as (db, stays):
        for service in ("kubelet", "containerd"):
            faults.kill_service(db.host, service)
            stays(10)


def test_a_hung_kubelet_is_fenced_after_its_probation(place, failover):
    """Without its kubelet no pod of the node can be started or stopped."""
    db = place()
    began = time.monotonic()
    go_on = faults.stop_service(db.host, "kubelet")
    try:
        failover.wait_until_fenced(db.node, PROBATION_SECONDS + SLOW_SECONDS)
        assert time.monotonic() - began > PROBATION_SECONDS
        db.moves()
    finally:
        go_on()
    failover.wait_until_over(db.node)
    db.lost_nothing()


def test_a_data_path_that_is_started_again_is_no_dead_node(place, failover):
    worker = ("lunkeeper", "datapath", "--worker-socket")
    with undisturbed(place, failover) as (db, stays):
        kill_all(find_processes(db.host, *worker))
        stays(8)
        wait_until(lambda: find_processes(db.host, *worker), 20, "another worker runs")
