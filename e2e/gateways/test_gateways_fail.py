"""Gateways of an array on Ceph that lose their power or are cut off, under a writer on each node.

No pod gets an error, none is moved, and no node is fenced, unless a node fails too.
"""

from __future__ import annotations

import os
import statistics
import time

from cluster import faults
from cluster.gateways import Gateway, GatewayCluster
from harness.cleanup import wait_until
from kube.failover.watching import Failover
from kube.workloads import Workloads
from kube.writer import Writer

ROUNDS = int(os.environ.get("GATEWAY_ROUNDS", "3"))
CUT_SECONDS = 30


def seconds_until_all_write(writers: list[Writer], began: float) -> float:
    """From `began` until each has had a write acknowledged that it had not when this was called."""
    before = [writer.acknowledged() for writer in writers]
    waiting = set(range(len(writers)))

    def all_wrote() -> bool:
        waiting.difference_update([at for at in waiting if writers[at].acknowledged() > before[at]])
        return not waiting

    wait_until(all_wrote, 120, lambda: f"all write: {[writers[at].said() for at in waiting]}", pause=0.02)
    return time.monotonic() - began


def nothing_else_happened(failover: Failover, workloads: Workloads, writers: list[Writer]) -> None:
    """Every write is there, in the pods that began."""
    assert not failover.fences()
    for writer in writers:
        writer.goes_on()
        counters = writer.stop()
        assert counters["io_errors"] == 0, counters
        writer.goes_on()
        writer.verify(writer.pod)


def test_the_power_of_the_gateway_goes_again_and_again(
    cluster: GatewayCluster, failover: Failover, workloads: Workloads, writers: list[Writer]
) -> None:
    took = []
    for number in range(ROUNDS):
        old = cluster.serving()
        assert old
        began = time.monotonic()
        old.power_off()
        took.append(seconds_until_all_write(writers, began))
        print(f"round {number}: all write {took[-1]:.1f} s after the power of {old.name} went")
        old.boot()
        wait_until(old.stands_by, 60, f"{old.name} stands by")
    print(f"median {statistics.median(took):.1f} s, worst {max(took):.1f} s")
    nothing_else_happened(failover, workloads, writers)


def test_a_gateway_that_is_cut_from_ceph_alone(
    cluster: GatewayCluster,
    serving: Gateway,
    failover: Failover,
    workloads: Workloads,
    writers: list[Writer],
) -> None:
    """It answers nodes, and can do nothing for them; when it can again, it is shut out."""
    began = time.monotonic()
    faults.cut_off(serving, hosts=[cluster.ceph_host])
    print(f"all write after {seconds_until_all_write(writers, began):.1f} s")
    time.sleep(max(0, CUT_SECONDS - (time.monotonic() - began)))
    faults.heal(serving)
    wait_until(serving.stands_by, 60, f"{serving.name} stands by")
    nothing_else_happened(failover, workloads, writers)


def test_a_gateway_that_is_cut_from_the_nodes_alone(
    cluster: GatewayCluster,
    serving: Gateway,
    failover: Failover,
    workloads: Workloads,
    writers: list[Writer],
) -> None:
    """It still has the array, so nobody takes that: all I/O waits, and no node is taken for dead."""
    faults.cut_off(serving, hosts=[*cluster.nodes.values()])
    time.sleep(CUT_SECONDS)
    assert cluster.serving() is serving
    faults.heal(serving)
    seconds_until_all_write(writers, time.monotonic())
    nothing_else_happened(failover, workloads, writers)


def test_a_gateway_that_is_cut_from_its_peer_alone(
    cluster: GatewayCluster,
    serving: Gateway,
    failover: Failover,
    workloads: Workloads,
    writers: list[Writer],
) -> None:
    """They speak to each other through Ceph alone."""
    faults.cut_off(serving, hosts=[gateway for gateway in cluster.gateways if gateway is not serving])
    for _ in range(3):
        seconds_until_all_write(writers, time.monotonic())
    assert cluster.serving() is serving
    nothing_else_happened(failover, workloads, writers)


def test_a_node_and_the_gateway_lose_their_power_at_once(
    cluster: GatewayCluster,
    serving: Gateway,
    failover: Failover,
    workloads: Workloads,
    writers: list[Writer],
) -> None:
    node = next(iter(cluster.nodes))
    began = time.monotonic()
    serving.power_off()
    cluster.nodes[node].power_off()
    took = seconds_until_all_write(writers, began)
    print(f"all write, the dead node's on another one, after {took:.1f} s")
    pods = [workloads.wait_for_pod(writer.pod)["spec"]["nodeName"] for writer in writers]
    assert node not in pods
    assert set(failover.fences()) == {node}
    for writer in writers:
        writer.goes_on()
        writer.verify(writer.pod)
