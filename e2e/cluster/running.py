"""A cluster with Lunkeeper in it, for as long as it is used."""

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from cluster import deploy, programs
from cluster.cluster import Cluster

SomeCluster = TypeVar("SomeCluster", bound=Cluster)


@contextlib.contextmanager
def new_cluster(cluster: SomeCluster) -> Iterator[SomeCluster]:
    """This cluster, made now and removed at the end."""
    programs.build_all()
    try:
        cluster.up()
        deploy.prepare(cluster)
        deploy.install(cluster)
        yield cluster
    finally:
        cluster.down()


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The cluster of `./dev cluster up` if it runs, or one that is made now and removed at the end."""
    cluster = Cluster()
    if cluster.ready_nodes() == set(cluster.nodes):
        yield cluster
        return
    with cluster.locked(), new_cluster(cluster):
        yield cluster
