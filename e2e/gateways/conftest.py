"""A cluster whose array is in Ceph, with two gateways, for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.gateways import Gateway, GatewayCluster
from cluster.running import new_cluster
from kube.failover.watching import Failover
from kube.workloads import Workloads
from kube.writer import SmallWriter


@pytest.fixture(scope="session")
def cluster() -> Iterator[GatewayCluster]:
    with new_cluster(GatewayCluster("gateways")) as cluster:
        yield cluster


@pytest.fixture
def serving(cluster: GatewayCluster) -> Gateway:
    """The gateway that serves when the test begins."""
    gateway = cluster.serving()
    assert gateway
    return gateway


@pytest.fixture
def workloads(cluster: GatewayCluster) -> Iterator[Workloads]:
    made = Workloads(cluster)
    yield made
    made.remove()


@pytest.fixture
def failover(cluster: GatewayCluster, workloads: Workloads) -> Iterator[Failover]:
    """At the end both gateways are whole, and every node."""
    failover = Failover(cluster)
    yield failover
    cluster.mend_gateways()
    failover.end()


@pytest.fixture
def writers(workloads: Workloads, failover: Failover) -> list[Writer]:
    """One on each node, to a raw device of its own."""
    claim = {"size": "64Mi", "volumeMode": "Block"}
    made = []
    for node in failover.cluster.nodes:
        with workloads.new_pods_go_to(node):
            writer = SmallWriter(workloads, f"on-{node}", claim, block=True, owner="StatefulSet")
            made.append(writer.goes_on())
    return made
