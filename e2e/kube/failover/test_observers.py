"""The parts that decide and act fail themselves: the leader, the API server, the array's agent."""

import time

from cluster import faults
from cluster.faults import find_processes
from cluster.storage import AGENT_PORT
from harness.cleanup import wait_until
from harness.processes import kill_pid
from kube.failover.watching import MOVES_SECONDS

YIELDS_SECONDS = 30


def test_the_leaders_own_node_loses_its_power(place, failover):
    db = place(node=failover.leader())
    db.host.power_off()
    db.moves()
    assert failover.leader() != db.node
    db.lost_nothing()
    db.host.boot()
    failover.wait_until_over(db.node)


def test_the_leader_is_killed_in_the_middle(place, failover):
    """Several times, at any step of the failover."""
    leading = failover.leader()
    db = place(node=next(name for name in failover.cluster.nodes if name != leading))
    db.host.power_off()
    for _ in range(4):
        time.sleep(0.7)
        for pid in find_processes(failover.host(leading), "lunkeeper", "serve", "--mode=controller"):
            kill_pid(pid)
    db.moves(seconds=2 * MOVES_SECONDS)
    db.lost_nothing()


def test_the_api_server_is_down_when_a_node_dies(place, failover):
    """Nothing can move without it. When it is back the controllers act on what it says then."""
    db = place()
    control = failover.cluster.control
    hung = faults.stop_service(control, "kube-apiserver")
    db.host.power_off()
    time.sleep(10)
    hung()
    db.moves(seconds=3 * MOVES_SECONDS)
    db.lost_nothing()


def test_the_api_server_is_killed_during_a_failover(place, failover):
    db = place()
    db.host.power_off()
    time.sleep(2.5)
    faults.kill_service(failover.cluster.control, "kube-apiserver")
    db.moves(seconds=3 * MOVES_SECONDS)
    db.lost_nothing()


def test_the_arrays_agent_is_killed_while_it_fences(place, failover):
    db = place()
    storage = failover.cluster.storage
    db.host.power_off()
    deadline = time.monotonic() + MOVES_SECONDS
    while failover.fence(db.node) is None:
        assert time.monotonic() < deadline, failover.tell()
    for pid in find_processes(storage, "lunkeeper", "array"):
        kill_pid(pid)
    db.moves(seconds=3 * MOVES_SECONDS)
    db.lost_nothing()


def test_tgtd_is_killed_while_a_node_is_fenced(place, failover):
    db = place()
    other = place("other", node=next(name for name in failover.cluster.nodes if name != db.node))
    db.host.power_off()
    wait_until(lambda: failover.fence(db.node), MOVES_SECONDS, "the failover has begun", pause=0.05)
    for pid in find_processes(failover.cluster.storage, "tgtd"):
        kill_pid(pid)
    db.moves(seconds=3 * MOVES_SECONDS)
    other.writer.goes_on(seconds=60)
    db.lost_nothing()
    other.lost_nothing()


def test_the_leader_stalls(place, failover):
    """After a stall it does not trust its old observations: it fences no node when it continues."""
    leading = failover.leader()
    db = place(node=next(name for name in failover.cluster.nodes if name != leading))
    uid = db.uid()
    pids = find_processes(failover.host(leading), "lunkeeper", "serve", "--mode=controller")
    for _ in range(3):
        with faults.stopped(pids):
            time.sleep(6)
        failover.stays_quiet(4, lambda: db.stays(uid))
    db.lost_nothing()


def test_the_leader_is_cut_off_from_one_node(place, failover):
    """Another controller hears the node: nothing is fenced, and that one leads. It fails the node over."""
    controllers, leading = failover.with_controllers(), failover.leader()
    db = place(node=next(name for name in failover.cluster.nodes if name not in controllers))
    uid = db.uid()
    faults.cut_off(failover.host(leading), hosts=[db.host])
    another_leads(failover, leading)
    failover.stays_quiet(15, lambda: db.stays(uid))
    db.writer.goes_on()
    db.host.power_off()
    db.moves(seconds=2 * MOVES_SECONDS)
    db.lost_nothing()


def test_the_leader_is_cut_off_from_the_array_alone(place, failover):
    """Its own node's volumes go on. Another one leads, and fails over."""
    controllers, leading = failover.with_controllers(), failover.leader()
    beside = place("beside", node=leading)
    db = place(node=next(name for name in failover.cluster.nodes if name not in controllers))
    uid, beside_uid = db.uid(), beside.uid()
    faults.cut_off(beside.host, ports=[AGENT_PORT])
    another_leads(failover, leading)
    failover.stays_quiet(15, lambda: db.stays(uid) and beside.stays(beside_uid))
    beside.writer.goes_on()
    db.host.power_off()
    db.moves(seconds=2 * MOVES_SECONDS)
    assert beside.stays(beside_uid)
    for each in (db, beside):
        each.lost_nothing()


def another_leads(failover, leading):
    wait_until(
        lambda: failover.leader() != leading,
        YIELDS_SECONDS,
        lambda: f"another controller than that of {leading} leads\n{failover.tell()}",
        pause=0.3,
    )
