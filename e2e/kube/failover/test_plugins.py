"""Parts of a node die or hang while its workload is well."""

import time

from cluster import deploy, faults
from cluster.faults import find_processes
from harness.cleanup import wait_until
from harness.processes import kill_pid
from kube.failover.watching import SLOW_SECONDS

PLUGIN = ("lunkeeper", "serve", "--mode=node")
PROBATION_SECONDS = 60


def test_a_killed_plugin_is_no_dead_node(place, failover):
    db = place()
    uid = db.uid()
    for pid in find_processes(db.host, *PLUGIN):
        kill_pid(pid)
    failover.stays_quiet(12, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


def test_a_crash_looping_plugin_is_no_dead_node(place, failover):
    """Killed whenever it is there, for longer than a dead node is given."""
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
    db = place()
    uid = db.uid()
    pids = find_processes(db.host, *PLUGIN)
    for pid in pids:
        faults.signal_if_there(pid, faults.signal.SIGSTOP)
    try:
        failover.stays_quiet(15, lambda: db.stays(uid))
        db.writer.goes_on()
    finally:
        for pid in pids:
            faults.signal_if_there(pid, faults.signal.SIGCONT)
    db.lost_nothing()


def test_an_upgrade_moves_nothing(place, failover):
    """Controllers and node plugins are replaced one by one."""
    db = place()
    uid = db.uid()
    changed = {"podAnnotations": {"test": db.workloads.namespace}}
    deploy.install(failover.cluster, controller=changed, node=changed)
    failover.stays_quiet(8, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


def test_a_killed_kubelet_and_a_killed_runtime_are_no_dead_node(place, failover):
    db = place()
    uid = db.uid()
    for service in ("kubelet", "containerd"):
        faults.kill_service(db.host, service)
        failover.stays_quiet(10, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


def test_a_hung_kubelet_is_fenced_after_its_probation(place, failover):
    """Nobody could start or stop a pod there any more."""
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
    db = place()
    uid = db.uid()
    for pid in find_processes(db.host, "lunkeeper", "datapath", "--worker-socket"):
        kill_pid(pid)
    failover.stays_quiet(8, lambda: db.stays(uid))
    wait_until(lambda: find_processes(db.host, "lunkeeper", "datapath", "--worker-socket"), 20, "another worker runs")
    db.writer.goes_on()
    db.lost_nothing()
