"""Each test has the cluster in good order before and after it, and a writer to watch."""

import pytest

from kube.failover.watching import Failover, Placed
from kube.writer import Writer


@pytest.fixture
def failover(cluster, workloads):
    """Mends the cluster before the test's own objects are taken away: what is on a dead node cannot be."""
    failover = Failover(cluster)
    failover.end()  # what an interrupted test left
    yield failover
    failover.end()


@pytest.fixture
def place(failover, workloads):
    """Makes a writer with a volume of its own and waits until it writes. `node`: where it runs first."""
    def make(name="db", node=None, block=True, **spec):
        others = [other for other in workloads.cluster.nodes if node and other != node]
        for other in others:
            workloads.kubectl("cordon", other)
        try:
            claim = {"size": "64Mi", "volumeMode": "Block"} if block else None
            writer = Writer(workloads, name, claim, block=block, owner="StatefulSet", **spec).goes_on()
        finally:
            for other in others:
                workloads.kubectl("uncordon", other)
        return Placed(failover, workloads, writer)
    return make
