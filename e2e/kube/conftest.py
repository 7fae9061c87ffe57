"""The cluster of these tests: that of `./dev cluster up` if it runs, or one that is made for them and
removed.
"""

import subprocess

import pytest

from cluster import deploy
from cluster.running import running_cluster
from kube.failover.watching import Failover
from kube.workloads import Workloads


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails says what became of the plugin: in a run of all tests nobody can look later."""
    report = (yield).get_result()
    if not report.failed or "cluster" not in item.funcargs:
        return
    try:
        report.sections.append(("the plugin's pods", deploy.tell_unready(item.funcargs["cluster"])))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        report.sections.append(("the plugin's pods", f"cannot be asked: {error}"))


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
