"""The cluster of these tests: that of `./dev cluster up` if it runs, or one that is made for them and
removed.
"""

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
    """Pods and claims of one test, in a namespace of its own.

    It is deleted while the next test runs; test_end_of_run checks that all of it is gone.
    """
    made = Workloads(cluster)
    yield made
    made.remove()


@pytest.fixture
def failover(cluster, workloads):
    """Heals the cluster before the test's objects are deleted: those on a dead node could not be."""
    failover = Failover(cluster)
    failover.end()  # after an interrupted test
    yield failover
    failover.end()
