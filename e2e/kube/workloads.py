"""The workloads of the tests: plain Kubernetes objects in a namespace of each test."""

import contextlib
import secrets

from cluster.cluster import BUSYBOX_IMAGE
from cluster.deploy import DRIVER
from harness.cleanup import wait_until


TEST_NAMESPACE = "test-"


class Workloads:
    def __init__(self, cluster):
        self.cluster, self.namespace = cluster, f"{TEST_NAMESPACE}{secrets.token_hex(4)}"
        self.kubectl = cluster.kubectl
        self._classes = []
        self.kubectl("create", "namespace", self.namespace)

    def remove(self):
        """Does not wait: kube/leaks.py finds what remains."""
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")
        for kind, name in self._classes:
            self.kubectl("delete", kind, name)

    def volumes(self):
        """The names of the persistent volumes that are, or were, claimed from here."""
        return [
            volume["metadata"]["name"]
            for volume in self.kubectl.items("pv")
            if volume["spec"].get("claimRef", {}).get("namespace") == self.namespace
        ]

    @property
    def here(self):
        return (f"--namespace={self.namespace}",)

    def apply(self, *objects):
        for each in objects:
            each["metadata"]["namespace"] = self.namespace
        self.kubectl.apply(*objects)

    def claim(self, name, labels=None, **differences):
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "labels": labels or {}},
                "spec": claim_spec(**differences),
            }
        )

    def pod(self, name, claim=None, more_volumes=(), **spec):
        """`spec`: differences from the usual pod, such as other volumes than the claim's."""
        self.apply(pod_object(name, claim, more_volumes, **spec))

    def pod_with_claim(self, name, claim="data", **differences):
        """A ready pod with a claim of its own. `differences`: of the claim from the usual one."""
        self.claim(claim, **differences)
        self.pod(name, claim)
        return self.wait_for_pod(name)

    def stateful_set(
        self, name, replicas=1, claim=None, more_volumes=(), claims=True, shares=None, **spec
    ):
        """`claim`: differences from the usual claim; `spec`: from the usual pod.

        Without `claims` the volume is an emptyDir. `shares`: a claim that there is already, in its place.
        """
        claims = claims and shares is None
        data = {"persistentVolumeClaim": {"claimName": shares}} if shares else {"emptyDir": {}}
        selector = {"app": name}
        template = {"metadata": {"name": "data"}, "spec": claim_spec(**(claim or {}))}
        volumes = list(more_volumes) if claims else [{"name": "data", **data}, *more_volumes]
        self.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": name},
                "spec": {
                    "serviceName": name,
                    "replicas": replicas,
                    "selector": {"matchLabels": selector},
                    "podManagementPolicy": "Parallel",
                    "template": {
                        "metadata": {"labels": selector},
                        "spec": {**pod_spec(), "volumes": volumes, **spec},
                    },
                    "volumeClaimTemplates": [template] if claims else [],
                },
            }
        )

    def snapshot(self, name, claim):
        """Makes a snapshot of the claim's volume, and waits until it is ready."""
        spec = {"volumeSnapshotClassName": "lunkeeper", "source": {"persistentVolumeClaimName": claim}}
        self._snapshot("snapshot.storage.k8s.io/v1", "VolumeSnapshot", name, spec)
        self.wait_for_snapshot("volumesnapshot", name)

    def ask_for_group(self, name, labels):
        """Asks for a group of snapshots of the claims with these labels."""
        spec = {
            "volumeGroupSnapshotClassName": "lunkeeper",
            "source": {"selector": {"matchLabels": labels}},
        }
        self._snapshot("groupsnapshot.storage.k8s.io/v1", "VolumeGroupSnapshot", name, spec)

    def snapshot_group(self, name, labels):
        """Makes such a group, and waits until it is ready and each of its snapshots names it.

        The snapshot controller makes the group ready first, and fills its snapshots in later.
        """
        self.ask_for_group(name, labels)
        self.wait_for_snapshot("volumegroupsnapshot", name)
        group = self.kubectl.get("volumegroupsnapshot", name, *self.here)
        content = group["status"]["boundVolumeGroupSnapshotContentName"]
        status = self.kubectl.get("volumegroupsnapshotcontent", content)["status"]
        wait_until(
            lambda: len(self.members(name)) == len(status["volumeSnapshotInfoList"]),
            60,
            lambda: f"each snapshot of {name} names it: {self.events(name)}",
            pause=0.1,
        )

    def members(self, group):
        """{claim: the VolumeSnapshot that a group has of it}, in order of the claims."""
        found = {
            each["spec"]["source"].get("persistentVolumeClaimName"): each["metadata"]["name"]
            for each in self.kubectl.items("volumesnapshots", *self.here)
            if each.get("status", {}).get("volumeGroupSnapshotName") == group
        }
        return dict(sorted(found.items()))

    def _snapshot(self, api, kind, name, spec):
        self.apply({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})

    def wait_for_snapshot(self, kind, name):
        """Until a snapshot, or a group of them, is ready."""

        def ready():
            return self.kubectl.get(kind, name, *self.here).get("status", {}).get("readyToUse")

        wait_until(ready, 60, lambda: f"{kind} {name} is ready: {self.events(name)}", pause=0.1)

    def storage_class(self, name="class", **differences):
        """Makes a storage class of this test; returns its name."""
        fields = {"provisioner": DRIVER, "allowVolumeExpansion": True, **differences}
        return self._make_class("StorageClass", name, **fields)

    def attributes_class(self, name, **parameters):
        """Makes a VolumeAttributesClass of this test; returns its name."""
        return self._make_class("VolumeAttributesClass", name, driverName=DRIVER, parameters=parameters)

    def _make_class(self, kind, name, **fields):
        name = f"{self.namespace}-{name}"
        self.kubectl.apply(
            {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}
        )
        self._classes.append((kind.lower(), name))
        return name

    def wait_for_bound(self, claim, seconds=60):
        """Waits until the claim is bound; returns its volume's name."""

        def bound():
            found = self.kubectl.get("pvc", claim, *self.here)
            return found["spec"].get("volumeName") if found["status"].get("phase") == "Bound" else None

        return wait_until(bound, seconds, lambda: f"{claim} is bound: {self.events(claim)}", pause=0.1)

    def wait_for_pod(self, name, seconds=60):
        return self.kubectl.wait_for_pod(name, *self.here, seconds=seconds)

    def run_in(self, pod, *argv, seconds=60):
        return self.kubectl.run_in(pod, *argv, namespace=self.namespace, seconds=seconds)

    def shell(self, pod, script, seconds=60):
        return self.run_in(pod, "sh", "-c", script, seconds=seconds)

    @contextlib.contextmanager
    def new_pods_go_to(self, node):
        """Cordons all other nodes while the context lasts."""
        others = [other for other in self.cluster.nodes if other != node]
        try:
            self.kubectl("cordon", *others)
            yield
        finally:
            self.kubectl("uncordon", *others)

    def drain(self, node):
        """As before the node's maintenance."""
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
        self.kubectl("drain", node, *options, seconds=90)

    def delete(self, kind, name, *arguments):
        self.kubectl("delete", kind, name, *self.here, *arguments, seconds=120)

    def opt_out(self, pod):
        """Excludes a pod from failover."""
        self.kubectl("label", "pod", pod, *self.here, "lunkeeper.io/failover=never")

    def events(self, name):
        """The events of an object, reason and message, the latest last."""
        everywhere = (
            ("--all-namespaces",) if name in self.volumes() else self.here
        )  # a volume is in no namespace
        listed = self.kubectl.items("events", *everywhere, f"--field-selector=involvedObject.name={name}")
        return [f"{event['reason']}: {event['message']}" for event in listed]


def claim_spec(size="256Mi", storage_class="lunkeeper", mode="ReadWriteOnce", **spec):
    return {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": size}},
        **spec,
    }


def pod_spec():
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": BUSYBOX_IMAGE,
                "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
    }


def pod_object(name, claim=None, more_volumes=(), **spec):
    """As Workloads.pod makes it."""
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**pod_spec(), "volumes": [claimed, *more_volumes], **spec},
    }


def block_container(**devices):
    """The usual container with these claims' devices: {name of the pod's volume: path}; usually its data."""
    container = pod_spec()["containers"][0]
    del container["volumeMounts"]
    devices = devices or {"data": "/dev/data"}
    return {
        **container,
        "volumeDevices": [{"name": name, "devicePath": path} for name, path in devices.items()],
    }


def wait_for_event(workloads, name, *words):
    """Waits until one event of the object has all these words."""

    def said():
        return any(all(word in event for word in words) for event in workloads.events(name))

    wait_until(
        said, 60, lambda: f"an event of {name} with {words}; there are {workloads.events(name)}", pause=0.2
    )


def wait_for_group_error(workloads, name, *words):
    """Waits until a group of snapshots says of itself, in these words, why it is not made.

    And until it has its finalizer, which may come later: if a group is deleted before that, the snapshot
    controller (8.6) never deletes its content, and the sidecar goes on to make the group.
    """

    def group():
        return workloads.kubectl.get("volumegroupsnapshot", name, *workloads.here)

    def said():
        found = group()
        message = found.get("status", {}).get("error", {}).get("message", "")
        return all(word in message for word in words) and found["metadata"].get("finalizers")

    wait_until(said, 60, lambda: f"{words} in {group()}", pause=0.2)
