"""`./dev demo --storage-failover`: the storage host dies, and a pod writes on.

It makes a small Ceph, a cluster of three nodes, and two gateways to Ceph: one serves the array, one stands
by. The pod of a StatefulSet writes. The power of the gateway goes, then that of the pod's node. All that it
prints is checked: the exit code is 0 only then.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster import deploy, programs  # noqa: E402
from cluster.gateways import GatewayCluster  # noqa: E402
from harness.cleanup import Cleanup, interrupt_on_sigterm, wait_until  # noqa: E402
from harness.story import check, step, tell  # noqa: E402
from kube import demo  # noqa: E402
from kube.failover.watching import Failover, first_new_write  # noqa: E402
from kube.workloads import Workloads  # noqa: E402
from kube.writer import FILE  # noqa: E402


def start(cleanup):
    programs.build_all()
    cluster = GatewayCluster("storage-demo")
    cleanup.add(cluster.down)
    with step("Started Ceph, two gateways to it, and a Kubernetes {} cluster of three nodes") as said:
        cluster.up()
        said.append(programs.versions()["k8s.io/kubernetes"])
    with step("Installed Lunkeeper with its Helm chart; its array has the addresses of both gateways"):
        deploy.prepare(cluster)
        deploy.install(cluster)
    return cluster


def lose_gateway(cluster, writer):
    """Its power goes, and comes again when the other one serves."""
    old = cluster.serving()
    began = time.time()
    old.power_off()
    wrote = first_new_write(writer, writer.acknowledged())
    new = wait_until(cluster.serving, 60, "the other gateway serves")
    tell(
        f"Ended the power of the gateway, host {old.name}: {wrote - began:.1f} s later the pod writes on,"
        f" through host {new.name}"
    )
    writer.goes_on(demo.MORE)
    before = writer.acknowledged()
    writer.verify("database-0", FILE)
    tell(f"All {before} acknowledged writes are there, by their checksums")
    with step("Gave {} its power again: it stands by") as said:
        old.boot()
        wait_until(old.stands_by, 60, f"{old.name} stands by")
        said.append(old.name)


def main():
    interrupt_on_sigterm()
    with Cleanup() as cleanup:
        cluster = start(cleanup)
        workloads = Workloads(cluster)
        writer, node = demo.write(workloads)
        lose_gateway(cluster, writer)
        pod = workloads.wait_for_pod("database-0")
        check(pod["spec"]["nodeName"] == node, "the pod was moved")
        check(pod["status"]["containerStatuses"][0]["restartCount"] == 0, f"it ended: {writer.said()}")
        failover = Failover(cluster)
        check(not failover.fences(), f"a node was fenced: {failover.fences()}")
        tell(f"No error in {writer.acknowledged()} writes; the pod was not moved, and no node was fenced")
        demo.fail(failover, workloads, writer)
        with step("Deleted everything"):
            workloads.remove()
            wait_until(lambda: not cluster.images_of_volumes(), 60, "no volume is left in Ceph", pause=0.5)
        tell("No image of a volume is left in Ceph")
    tell("Done: the gateway died, then a node; nothing lost. The cluster is gone again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
