"""A pod that writes stamped blocks to its volume and reads them back
(devices/libiscsi/testing/block_checker).

Its acknowledged writes are noted in a record on this machine, outside the volume and the pod. So the record
survives both, and a writer on another node continues from it.
"""

import json
import struct

from harness.cleanup import wait_until
from kube.workloads import pod_spec

GOOD = 0
DEVICE, FILE = "/dev/data", "/data/file"


class Writer:
    THREADS, BLOCKS = 4, 4096
    # Some write is under way at any time all the same, and the cluster's own programs get to run as well.
    PAUSE_MS = 2

    def __init__(self, workloads, name, claim, *, block=False, owner="Pod", file=FILE, **spec):
        """`owner`: Pod, or StatefulSet for a pod that is recreated; `claim` is its template then, or the name
        of a claim that it shares with other writers, each with a `file` of its own. Or a function that makes
        the pod, with the arguments of Workloads.pod.
        """
        self.workloads, self.name, self.target = workloads, name, DEVICE if block else file
        self.pod = f"{name}-0" if owner == "StatefulSet" else name
        folder = workloads.cluster.folder / "records"
        folder.mkdir(exist_ok=True)
        self.record = folder / f"{workloads.namespace}-{name}"
        spec = {**self._spec(block), **spec}
        if callable(owner):
            owner(name, claim, **spec)
        elif owner == "Pod":
            workloads.pod(name, claim, **spec, restartPolicy="Never")
        elif isinstance(claim, str):
            workloads.stateful_set(name, shares=claim, **spec)
        else:
            workloads.stateful_set(name, claim=claim, **spec)

    def _spec(self, block):
        container = pod_spec()["containers"][0]
        where = (
            {"volumeDevices": [{"name": "data", "devicePath": DEVICE}]}
            if block
            else {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        )
        where.setdefault("volumeMounts", []).append({"name": "records", "mountPath": "/records"})
        # All blocks exist beforehand, so that a later direct write does not depend on a change of metadata.
        file = self.target
        fill = f"dd if=/dev/zero of={file}.new bs=1M count=32 conv=fsync && mv {file}.new {file} && sync"
        prepare = "" if block else f"[ -e {file} ] || ({fill}); "
        script = (
            f"{prepare}exec block_checker write --device={self.target} --record=/records/{self.record.name} "
            f"--threads={self.THREADS} --blocks={self.BLOCKS} --flush-every=64 "
            f"--pause-ms={self.PAUSE_MS}"
        )
        return {
            "containers": [{**container, **where, "command": ["sh", "-c", script]}],
            "terminationGracePeriodSeconds": 20,
            "more_volumes": [{"name": "records", "hostPath": {"path": str(self.record.parent)}}],
        }

    def acknowledged(self):
        return self.count(self.record.read_bytes()) if self.record.exists() else 0

    @staticmethod
    def count(data):
        """The number of acknowledged writes in a record."""
        return sum(acked for _, acked in struct.iter_unpack("<II", data[: len(data) // 8 * 8]))

    def goes_on(self, more=200, seconds=60):
        """Waits for that many more acknowledged writes. The writer may not have ended."""
        wanted = self.acknowledged() + more

        def enough():
            if self.acknowledged() >= wanted:
                return True
            pod = self.workloads.kubectl.find("pod", self.pod, *self.workloads.here)
            # One that is being deleted ends too, and is replaced.
            over = pod and "deletionTimestamp" not in pod["metadata"]
            if over and pod["status"].get("phase") in ("Failed", "Succeeded"):
                raise AssertionError(f"the writer ended:\n{self.said()}")
            return False

        wait_until(enough, seconds, lambda: f"{more} more writes\n{self.said()}\n{self.why()}", pause=0.1)
        return self

    def said(self, *which):
        return self.workloads.kubectl.attempt(
            "logs", self.pod, *self.workloads.here, "--tail=20", *which
        ).stdout

    def why(self):
        return self.workloads.kubectl.why(self.pod, *self.workloads.here)

    def stop(self):
        """Ends it and returns its counters; it must have seen no error and no bad data."""
        workloads = self.workloads
        pod = workloads.kubectl.get("pod", self.pod, *workloads.here)
        owned, lives = (
            "ownerReferences" in pod["metadata"],
            pod["status"]["containerStatuses"][0]["restartCount"],
        )
        workloads.run_in(self.pod, "sh", "-c", "kill $(pidof block_checker)")

        def ended():
            """How its last container ended, and its output. A container of a StatefulSet restarts at once."""
            (status,) = workloads.kubectl.get("pod", self.pod, *workloads.here)["status"]["containerStatuses"]
            if status["restartCount"] > lives:
                said = self.said("--previous")
                # Until kubelet finds the log there is nothing, or a message of kubelet's own.
                return (status["lastState"]["terminated"], said) if said.rstrip().endswith("}") else None
            if owned or "terminated" not in status["state"]:
                return None
            return status["state"]["terminated"], self.said()

        state, said = wait_until(
            ended,
            60,
            lambda: f"the writer ends\n{self.said()}\n{self.said('--previous')}\n{self.why()}",
            pause=0.2,
        )
        assert state["exitCode"] == GOOD, said
        return json.loads(said.strip().split("\n")[-1])

    def verify(self, pod, device=None):
        """Reads all blocks in this pod: no acknowledged write is lost."""
        self.workloads.run_in(
            pod,
            "block_checker",
            "verify",
            f"--device={device or self.target}",
            f"--record=/records/{self.record.name}",
        )


class SmallWriter(Writer):
    """What it wrote is read back in a second or so, also on a busy machine."""

    BLOCKS = 512
