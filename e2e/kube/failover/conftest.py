"""Each test has the cluster in good order before and after it, and a writer to watch."""

import functools

import pytest

from kube.failover import watching
from kube.failover.watching import Failover


def pytest_collection_modifyitems(items):
    """So that others may run a few of these, or none."""
    for item in items:
        if __package__ in item.module.__name__:
            item.add_marker("failover")


@pytest.fixture
def failover(cluster, workloads):
    """Mends the cluster before the test's own objects are taken away: what is on a dead node cannot be."""
    failover = Failover(cluster)
    failover.end()  # what an interrupted test left
    yield failover
    failover.end()


@pytest.fixture
def place(failover, workloads):
    return functools.partial(watching.place, failover, workloads)
