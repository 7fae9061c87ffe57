"""A volume is deleted when no node has it any more, and not before."""

import contextlib
import os
import signal

from harness.cleanup import wait_until
from kube.workloads import wait_for_event
from kube.writer import Writer


def test_a_claim_that_is_deleted_under_its_pod_goes_with_the_pod(workloads):
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    workloads.delete("pvc", "data", "--wait=false")
    writer.goes_on()
    assert "deletionTimestamp" in workloads.kubectl.get("pvc", "data", *workloads.here)["metadata"]
    assert len(workloads.volumes()) == 1
    writer.stop()
    workloads.delete("pod", "writer")
    wait_until(lambda: not workloads.volumes(), 60, "the volume is gone")


def test_a_volume_that_a_node_still_has_is_not_deleted_and_says_who_has_it(workloads):
    """Kubernetes believes that it is not in use: its pod was force-deleted while kubelet hung."""
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    node = workloads.wait_for_pod("writer")["spec"]["nodeName"]
    (volume,) = workloads.volumes()
    with hung(workloads.cluster.nodes[node].services()["kubelet"]):
        workloads.delete("pod", "writer", "--force", "--grace-period=0")
        workloads.delete("pvc", "data")
        wait_for_event(workloads, volume, "VolumeFailedDelete", f"granted to {node}.")
        before = writer.acknowledged()
        wait_until(lambda: writer.acknowledged() > before, 30, "the writer, which nobody has told, goes on")
    wait_until(
        lambda: not workloads.volumes(),
        90,
        lambda: f"the volume is gone: {workloads.events(volume)}",
        pause=0.2,
    )


@contextlib.contextmanager
def hung(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
