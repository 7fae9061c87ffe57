"""A cluster with Lunkeeper in it, for as long as it is used."""

import contextlib

from cluster import deploy, programs
from cluster.cluster import Cluster


@contextlib.contextmanager
def running_cluster():
    """The one that `./dev cluster up` made, if it runs, or one that is made now and taken away at the end."""
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
