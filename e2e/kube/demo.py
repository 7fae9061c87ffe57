"""`./dev demo`: Lunkeeper's main job in Kubernetes, in a few lines with times.

It makes a cluster of three nodes and a storage host, and installs Lunkeeper with its chart. The pod of a
StatefulSet writes to its volume, is moved by a drain, then its node loses its power. Each time it finds every
byte. All that it prints is checked: the exit code is 0 only then.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster import deploy, programs  # noqa: E402
from cluster.cluster import Cluster  # noqa: E402
from harness.cleanup import Cleanup, interrupt_on_sigterm, wait_until  # noqa: E402
from harness.story import check, step, tell  # noqa: E402
from kube import leaks  # noqa: E402
from kube.failover.watching import Failover, Placed, first_new_write, moments  # noqa: E402
from kube.workloads import Workloads  # noqa: E402
from kube.writer import FILE, Writer  # noqa: E402

MORE = 500  # writes to see before and after a move
TOLD = ("LastHeard", "Decided", "Recorded", "Fenced", "Tainted", "Deleted", "Phase", "Moved")


def start(cleanup):
    programs.build_all()
    cluster = Cluster("demo")
    cleanup.add(cluster.down)
    with step(
        "Started a Kubernetes {} cluster: a control plane, three nodes, a storage host with an array agent"
    ) as said:
        cluster.up()
        said.append(programs.versions()["k8s.io/kubernetes"])
    with step(
        "Installed Lunkeeper with its Helm chart: two controllers, and a plugin and a data path on each node"
    ):
        deploy.prepare(cluster)
        deploy.install(cluster)
    return cluster


def write(workloads):
    with step("A StatefulSet asked for a volume; its pod runs on {}, on a fresh ext4 over iSCSI") as said:
        writer = Writer(workloads, "database", None, owner="StatefulSet")
        node = workloads.wait_for_pod("database-0")["spec"]["nodeName"]
        said.append(node)
    with step(
        "It writes and reads back blocks with checksums: {} writes were acknowledged as durable"
    ) as said:
        writer.goes_on(MORE)
        said.append(writer.acknowledged())
    return writer, node


def move(workloads, writer, node):
    """Drains the node, as before its maintenance."""
    with step("Drained {}: the pod runs on {}, with its volume") as said:
        workloads.drain(node)
        moved = workloads.wait_for_pod("database-0")["spec"]["nodeName"]
        said += [node, moved]
    check(moved != node, "the pod did not move")
    workloads.kubectl("uncordon", node)
    before = writer.acknowledged()
    writer.verify("database-0", FILE)
    tell(f"All {before} acknowledged writes are there, by their checksums")
    writer.goes_on(MORE)


def copy(workloads):
    claim = "data-database-0"
    with step("Took a snapshot while it writes, and made a volume of it"):
        workloads.snapshot("moment", claim)
        workloads.claim(
            "copy",
            dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"},
        )
        workloads.pod("reader", "copy")
        workloads.wait_for_pod("reader")
    size = workloads.shell("reader", "stat -c %s /data/file").strip()
    check(int(size) == 32 << 20, f"the copy of the file has {size} bytes")
    tell(f"Another pod reads the copy ({int(size) >> 20} MiB)")
    workloads.delete("pod", "reader")
    workloads.delete("volumesnapshot", "moment")


def fail(failover, workloads, writer):
    """The machine loses its power, and boots again later."""
    placed = Placed(failover, workloads, writer)
    began = time.time()
    placed.host.power_off()
    wrote = first_new_write(writer, writer.acknowledged())
    moved = placed.moves()
    tell(
        f"Ended the power of {placed.node} while the pod wrote there: {wrote - began:.1f} s later it writes"
        f" on {moved}"
    )
    show_timeline(failover.wait_until_moved(placed.node), began)
    before = writer.acknowledged()
    writer.verify("database-0", FILE)
    tell(f"All {before} acknowledged writes are there, by their checksums")
    with step("Gave {} its power again: it cleaned up, its fence is lifted, its taint is gone") as said:
        placed.host.boot()
        failover.wait_until_over(placed.node)
        failover.wait_until_plugins_are_ready()
        said.append(placed.node)
    writer.goes_on(MORE)


def show_timeline(fence, began):
    print("          its NodeFence tells, in seconds since the power was off:")
    for at, event, text in moments(fence):
        if event in TOLD:
            print(f"          {at - began:+7.3f}  {event:<10} {text}", flush=True)


def main():
    interrupt_on_sigterm()
    with Cleanup() as cleanup:
        cluster = start(cleanup)
        workloads = Workloads(cluster)
        writer, node = write(workloads)
        move(workloads, writer, node)
        copy(workloads)
        fail(Failover(cluster), workloads, writer)
        writer.goes_on(MORE)
        (status,) = workloads.wait_for_pod("database-0")["status"]["containerStatuses"]
        check(status["restartCount"] == 0, f"the writer ended: {writer.said()}")
        tell(f"The writer saw no error and no wrong byte in {writer.acknowledged()} writes")
        with step("Deleted everything"):
            workloads.remove()
            wait_until(
                lambda: not leaks.found(cluster),
                60,
                lambda: f"nothing is left: {leaks.found(cluster)}",
                pause=0.5,
            )
        tell("No volume, snapshot, grant, target, session, loop device or mount is left")
    tell("Done: written, moved, copied, failed over, nothing lost. The cluster is gone again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
