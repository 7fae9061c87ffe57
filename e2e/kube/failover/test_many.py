"""Many nodes at once, and many pods on one."""

import time

import pytest

from cluster import deploy
from cluster.kubectl import seconds_of
from harness.cleanup import wait_until
from kube.many import MANY_SECONDS, Many
from kube.failover.watching import MOVES_SECONDS, Failover

PAUSE_SECONDS = 30  # between failovers over the budget
PODS = 20


@pytest.mark.timeout(900)
def test_twenty_pods_with_forty_volumes_move(place, failover, workloads, capsys):
    bystander = place("bystander", node="node-2")
    with workloads.new_pods_go_to(bystander.node):
        many = Many(workloads, PODS)
        many.all_go_on()
    assert many.nodes() == {bystander.node}
    bystander.host.power_off()
    began = time.monotonic()
    wait_until(
        lambda: bystander.node not in many.nodes(),
        MANY_SECONDS,
        lambda: f"all are elsewhere\n{failover.tell()}",
        pause=0.1,
    )
    deleted = time.monotonic() - began
    many.all_go_on()
    with capsys.disabled():
        print(
            f"\n{PODS} pods with {len(many.records())} volumes: the last was deleted {deleted:.1f} s"
            " after the power-off, and the last "
            f"wrote again after {time.monotonic() - began:.1f} s"
        )
    many.lost_nothing()
    bystander.moves()
    bystander.lost_nothing()


@pytest.fixture(scope="module")
def five_nodes(cluster):
    """The last three will die, so that the controllers stay."""
    failover = Failover(cluster)
    with failover.joined("node-4"), failover.joined("node-5"):
        yield list(cluster.nodes)


@pytest.fixture
def three_die(five_nodes, place, failover):
    """(the writers on dead nodes, the other writers), with a budget of one node.

    `cordoned`: no pod is scheduled to a dead node, as Kubernetes would do for half a minute.
    """

    def happen(over_budget, cordoned=False):
        deploy.install(
            failover.cluster,
            failover={"budgetPercent": 20, "overBudget": over_budget},
            controller={"nodeSelector": {}, "affinity": only_on(five_nodes[:2])},
        )
        failover.wait_until_all_say(f"budget 20 % of the nodes, then {over_budget.replace('-', ' ')};")
        placed = [place(f"db-{node}", node=node) for node in five_nodes]
        if cordoned:
            failover.kubectl("cordon", *five_nodes[2:])
        for each in placed[2:]:
            each.host.power_off()
        return placed[2:], placed[:2]

    yield happen
    failover.end()
    deploy.install(failover.cluster)
    failover.wait_until_all_say("budget 100 % of the nodes, then one by one;")


def only_on(nodes):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
                        ]
                    }
                ]
            }
        }
    }


def begun(fence):
    return seconds_of(fence["metadata"]["creationTimestamp"])


@pytest.mark.timeout(900)
def test_three_of_five_nodes_die_and_are_failed_over_one_by_one(three_die, failover):
    """Over the budget: one each half minute, since the other nodes, the arrays and the API server answer."""
    dead, alive = three_die("one-by-one")
    for each in dead:
        each.moves(seconds=3 * PAUSE_SECONDS + 3 * MOVES_SECONDS)
    starts = sorted(begun(failover.fence(each.node)) for each in dead)
    pauses = [later - sooner for sooner, later in zip(starts, starts[1:])]
    assert all(pause >= PAUSE_SECONDS - 2 for pause in pauses), pauses
    for each in [*dead, *alive]:
        each.lost_nothing()


@pytest.mark.timeout(900)
def test_three_of_five_nodes_die_and_the_budget_stops_after_one(three_die, failover):
    """The other two stay as they are, with an event, until a person requests it or they return."""
    dead, alive = three_die("stop", cordoned=True)
    uids = {each.node: each.uid() for each in dead}
    wait_until(
        failover.fences, MOVES_SECONDS, lambda: f"the first is failed over\n{failover.tell()}", pause=0.2
    )
    deadline = time.monotonic() + PAUSE_SECONDS + 15
    while time.monotonic() < deadline:
        assert len(failover.fences()) == 1, failover.tell()
        time.sleep(0.5)
    moved = next(each for each in dead if each.node in failover.fences())
    left = [each for each in dead if each is not moved]
    moved.moves()
    for each in left:
        assert each.uid() == uids[each.node]
        assert any("over the budget" in said for said in failover.refusals(each.node)), failover.refusals(
            each.node
        )
        each.host.boot()
    failover.end()
    for each in [moved, *left, *alive]:
        each.writer.goes_on(seconds=90)
        each.lost_nothing()
