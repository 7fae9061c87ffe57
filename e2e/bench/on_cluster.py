"""What the benchmarks on a Kubernetes cluster share."""

import contextlib

from cluster.running import running_cluster
from harness.cleanup import interrupt_on_sigterm
from kube.failover.watching import Failover, moments
from kube.workloads import Workloads

SECONDS = 60  # within which a replacement must be there


@contextlib.contextmanager
def benchmark():
    """(Failover, Workloads) on the cluster that runs, or on one that is made now and removed afterwards.

    All faults are healed before and after.
    """
    interrupt_on_sigterm()
    with running_cluster() as cluster:
        failover = Failover(cluster)
        failover.end()
        workloads = Workloads(cluster)
        try:
            yield failover, workloads
        finally:
            failover.end()
            workloads.remove()


def timeline(fences, node):
    """{event: its first time} of the node's last NodeFence. It may be deleted: the node may be back."""
    found = {}
    while not fences.changes.empty():
        _, _, fence = fences.changes.get()
        if "status" in fence and fence["metadata"]["name"].startswith(f"{node}."):
            found = {event: at for at, event, _ in reversed(moments(fence))}
    return found
