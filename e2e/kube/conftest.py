"""The cluster these tests run on: the one that `./dev cluster up` made, if it runs, or one that they make and take away."""

import pytest

from cluster.running import running_cluster
from kube.failover.watching import Failover
from kube.workloads import Workloads


@pytest.fixture(scope="session")
def cluster():
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def workloads(cluster):
    """Pods and claims of one test, in a namespace of its own. It is deleted while the next test runs; test_end_of_run checks
    that all of it is gone."""
    made = Workloads(cluster)
    yield made
    made.remove()


@pytest.fixture
def failover(cluster, workloads):
    """Mends the cluster before the test's own objects are taken away: what is on a dead node cannot be."""
    failover = Failover(cluster)
    failover.end()  # what an interrupted test left
    yield failover
    failover.end()
