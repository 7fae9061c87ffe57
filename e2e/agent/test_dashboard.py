"""Each panel of the chart's dashboard, asked of Debian's Prometheus: it has collected from a controller, an
array and two nodes, while volumes were written and a node froze. What it answers is what the picture in
docs/monitoring.md is drawn from (e2e/docs/draw_dashboard.py).
"""

import contextlib
import json
import os
import signal
import socket
import time

import pytest

from agent.agents import page
from agent.coordinated import CoordinatedRig
from harness import dashboard, docs, places
from harness.checker import IO_ERROR, BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.processes import kill_pid
from harness.prometheus import Prometheus
from harness.volume import MIB, Volume

ANSWERS = places.ROOT / "build/dashboard.json"
CALM_SECONDS = 15


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with CoordinatedRig(folder / "seen", xfs_pool, nodes=2) as rig:
        yield rig


@pytest.fixture(scope="module")
def prometheus(rig):
    with Prometheus(rig.folder / "prometheus", rig.metrics) as prometheus:
        yield prometheus


def writer(rig, name, node, **parameters):
    volume = rig.up(Volume(rig, node, name, block=True, size=32 * MIB, parameters=parameters))
    time.sleep(2)  # so that Prometheus sees the mounts one after the other
    return volume, BlockChecker(volume, threads=2).start()


def calls_that_fail(rig):
    """Each more than once: a rate needs two samples."""
    missing = Volume(rig, rig.nodes[0], "missing", block=True)
    missing.id = f"{rig.array_name}-v0123456789abcdef"
    for _ in range(3):
        assert code_of(missing.stage)[0] == "NOT_FOUND"
        time.sleep(1.1)


def requests_that_are_refused(rig):
    """More connections than a stranger may have, and a fence of a node that does not exist."""
    where = ("127.0.0.1", rig.coordinator_port)
    with contextlib.ExitStack() as strangers:
        for _ in range(20):
            strangers.enter_context(socket.create_connection(where, 10, ("127.0.0.9", 0)))
        wait_until(
            lambda: "lunkeeper_connections_refused_total{" in page(rig.metrics_port, "/metrics"),
            30,
            "some are refused",
        )
    fences = "/apis/lunkeeper.io/v1alpha1/nodefences"
    rig.api.create(fences, "nobody.0123456789abcdef", spec={"cause": "a test"})


def freeze_and_move(rig, node, volume):
    """The node's processes stop; its pod's volume is used on the other node; then they go on."""
    frozen = [node.server.pid, node.datapath.pid, node.datapath.worker()]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    rig.lose_kubelet(node)
    wait_until(
        lambda: rig.fence_of(node).get("phase") in ("Moved", "AwaitingNode"),
        60,
        lambda: f"its pods run elsewhere: {rig.fence_of(node)}\n{rig.controller.tail()}",
        pause=0.2,
    )
    moved = Volume(rig, rig.nodes[0], volume.name, block=True, size=volume.size).create().stage().publish()
    checker = BlockChecker(moved, threads=2).start()
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    return moved, checker


@pytest.fixture(scope="module")
def seen(rig, prometheus):
    """(when it began, when it ended)"""
    begin = time.time()
    stay, leave = rig.nodes
    writers = [writer(rig, f"db-{number}", stay) for number in range(3)]
    lost, lost_writer = writer(rig, "queue-0", leave)
    rig.controller.client.CreateSnapshot(name="kept", source_volume_id=writers[0][0].id)
    calls_that_fail(rig)
    requests_that_are_refused(rig)
    kill_pid(rig.tgtd())
    for _, checker in writers:
        checker.wait_for_writes(100, seconds=60)
    time.sleep(CALM_SECONDS)
    writers.append(freeze_and_move(rig, leave, lost))
    wait_until(lambda: not lost_writer.running(), 60, "the frozen node's writer gets an error")
    assert lost_writer.stop()[0] == IO_ERROR
    time.sleep(CALM_SECONDS)
    end = time.time()
    for _, checker in writers:
        checker.stop_good()
    return begin, end


@pytest.fixture(scope="module")
def answers(rig, prometheus, seen):
    begin, end = seen
    graphs = [panel for panel in dashboard.panels() if panel["type"] != "row"]
    shown = {panel["id"]: dashboard.answer(prometheus, panel, begin, end) for panel in graphs}
    # Certificates are in a folder with another name each time, which would only distract.
    told = json.dumps({"begin": begin, "end": end, "panels": shown})
    ANSWERS.write_text(told.replace(f"{rig.folder}/pki/", "/etc/lunkeeper/"))
    return shown


@pytest.mark.parametrize(
    "panel",
    [panel for panel in dashboard.panels() if panel["type"] != "row"],
    ids=lambda panel: str(panel["id"]),
)
def test_a_panel_shows_what_was_collected(panel, answers):
    assert dashboard.problems(panel, answers[panel["id"]]) == []


def test_a_panel_that_stays_empty_is_noticed(prometheus, seen):
    never = {
        "title": "never",
        "type": "timeseries",
        "targets": [{"expr": "lunkeeper_never", "legendFormat": "{{pod}}"}],
    }
    shown = dashboard.answer(prometheus, never, *seen)
    assert dashboard.problems(never, shown) == ["never: it stays empty"]


def latest(shown):
    """{legend: its last value}"""
    return {each["legend"]: each["values"][-1][1] for each in shown}


def test_the_panels_tell_what_happened(rig, answers):
    by_title = {panel["title"]: latest(answers.get(panel["id"], [])) for panel in dashboard.panels()}
    assert by_title["Replicas that act (one is right)"] == {"": 1}
    assert by_title["Nodes that kubelet can use"] == {"": 2}
    assert by_title["Nodes, by their classification"]["well"] > 0
    assert by_title["Devices that have failed"] == {"": 1}
    assert by_title["Volumes that are attached"] == {"": 5}
    assert 0 < by_title["How full pools are"][rig.array_name] < 1
    counted = {"volumes": 4, "snapshots": 1, "grants": 4, "sessions": 4}
    assert by_title["What arrays have, and the sessions of their grants"] == {
        f"{rig.array_name} {what}": count for what, count in counted.items()
    }
    promised = by_title["What pools have promised to each cluster"]
    assert list(promised.values()) == [5 * 32 * MIB]
    assert by_title["tgtds that are well"] == {rig.array_name: 1}
    deaths = "Deaths of tgtd, and logins that it refused, in five minutes"
    assert by_title[deaths][f"{rig.array_name} deaths"] > 0
    assert by_title["Volumes, by the portal that their I/O goes by"][rig.portal] >= 4
    failovers = "Failovers begun, refused by limit, and fences that an array did not carry out"
    assert by_title[failovers]["begun"] > 0
    assert {"delete", "all"} <= by_title["How long failovers took, median by phase"].keys()


def test_each_metric_of_the_page_is_read_from_a_running_system(prometheus, seen):
    """But for those of gateways: e2e/ceph/test_handover.py."""
    begin, end = seen
    listed = [each for each in docs.metrics() if each[0] != docs.GATEWAYS]
    assert len(listed) > 40
    missing = []
    for _, metric, labels in listed:
        series = prometheus.query_range(f'{{__name__=~"{metric}(_count)?"}}', begin, end, 1)
        if not any(labels <= each["metric"].keys() for each in series):
            missing.append(metric)
    assert missing == []
