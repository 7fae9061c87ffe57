"""Many pods with volumes, and a careful writer to each volume."""

from cluster.cluster import BUSYBOX_IMAGE
from harness.cleanup import wait_until
from kube.workloads import claim_spec
from kube.writer import Writer

VOLUMES = ("a", "b")  # of each pod
MANY_SECONDS = 180


class Many:
    """A StatefulSet of many pods, each with two volumes.

    Each volume has a writer that pauses between writes.
    """

    def __init__(self, workloads, pods, pause_ms=100):
        self.workloads = workloads
        self.folder = workloads.cluster.folder / "records"
        self.folder.mkdir(exist_ok=True)
        self.pods = [f"many-{number}" for number in range(pods)]
        containers = [
            {
                "name": volume,
                "image": BUSYBOX_IMAGE,
                "volumeDevices": [{"name": volume, "devicePath": "/dev/data"}],
                "volumeMounts": [{"name": "records", "mountPath": "/records"}],
                "command": [
                    "sh",
                    "-c",
                    "exec block_checker write --device=/dev/data --record=/records/"
                    f"{workloads.namespace}-$(hostname)-{volume} --threads=1 --blocks=256"
                    f" --pause-ms={pause_ms}",
                ],
            }
            for volume in VOLUMES
        ]
        labels = {"app": "many"}
        workloads.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "many"},
                "spec": {
                    "serviceName": "many",
                    "replicas": pods,
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "terminationGracePeriodSeconds": 5,
                            "containers": containers,
                            "volumes": [{"name": "records", "hostPath": {"path": str(self.folder)}}],
                        },
                    },
                    "volumeClaimTemplates": [
                        {"metadata": {"name": volume}, "spec": claim_spec(size="16Mi", volumeMode="Block")}
                        for volume in VOLUMES
                    ],
                },
            }
        )

    def records(self):
        return [
            self.folder / f"{self.workloads.namespace}-{pod}-{volume}"
            for pod in self.pods
            for volume in VOLUMES
        ]

    def all_go_on(self, seconds=MANY_SECONDS):
        """Waits until each writer has made at least one more write."""
        before = {
            record: Writer.count(record.read_bytes()) if record.exists() else 0 for record in self.records()
        }
        wait_until(
            lambda: all(
                record.exists() and Writer.count(record.read_bytes()) > before[record] for record in before
            ),
            seconds,
            lambda: f"all write\n{self.workloads.kubectl('get', 'pods', *self.workloads.here, '-o', 'wide')}",
            0.1,
        )

    def now(self):
        """The pods as they are now, also those not yet scheduled."""
        return self.workloads.kubectl.items("pods", *self.workloads.here, "--selector=app=many")

    def nodes(self):
        return {pod["spec"].get("nodeName") for pod in self.now()}

    def lost_nothing(self):
        for pod in self.pods:
            for volume in VOLUMES:
                self.workloads.kubectl(
                    "exec",
                    *self.workloads.here,
                    f"--container={volume}",
                    pod,
                    "--",
                    "block_checker",
                    "verify",
                    "--device=/dev/data",
                    f"--record=/records/{self.workloads.namespace}-{pod}-{volume}",
                )
