"""The cluster these tests run on: the one that `./dev cluster up` made, if it runs, or one that they make and take away."""

import pytest

from cluster import deploy, programs
from cluster.cluster import Cluster
from kube.workloads import Workloads


@pytest.fixture(scope="session")
def cluster():
    cluster = Cluster()
    if cluster.ready_nodes() == set(cluster.nodes):
        yield cluster
        return
    with cluster.locked():
        programs.build_all()
        try:
            cluster.up()
            deploy.prepare(cluster)
            deploy.install(cluster)
            yield cluster
        finally:
            cluster.down()


@pytest.fixture
def workloads(cluster):
    """Pods and claims of one test, in a namespace of its own, which goes while the next test runs; test_zz_leaks looks at the end."""
    made = Workloads(cluster)
    yield made
    made.remove()
