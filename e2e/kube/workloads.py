"""What the tests run on the cluster, as plain Kubernetes objects in a namespace of the test's own."""

import secrets

from cluster.cluster import BUSYBOX_IMAGE
from harness.cleanup import wait_until


class Workloads:
    def __init__(self, cluster):
        self.cluster, self.namespace = cluster, f"test-{secrets.token_hex(4)}"
        self.kubectl = cluster.kubectl
        self.kubectl("create", "namespace", self.namespace)

    def remove(self):
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")
        wait_until(lambda: self.kubectl.find("namespace", self.namespace) is None, 90,
                   lambda: f"namespace {self.namespace} is gone\n{self.kubectl('get', 'all,pvc', *self.here)}", pause=0.5)
        wait_until(lambda: not self.volumes(), 60, lambda: f"no volume is left: {self.volumes()}", pause=0.5)

    def volumes(self):
        """The names of the persistent volumes that are, or were, claimed from here."""
        return [volume["metadata"]["name"] for volume in self.kubectl.items("pv")
                if volume["spec"].get("claimRef", {}).get("namespace") == self.namespace]

    @property
    def here(self):
        return (f"--namespace={self.namespace}",)

    def apply(self, *objects):
        for each in objects:
            each["metadata"]["namespace"] = self.namespace
        self.kubectl.apply(*objects)

    def claim(self, name, size="256Mi", **spec):
        self.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                    "spec": claim_spec(size, **spec)})

    def pod(self, name, claim, **spec):
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {**pod_spec(), "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}], **spec}})

    def stateful_set(self, name, replicas=1, size="256Mi", node=None, **claim):
        selector = {"app": name}
        self.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": {
            "serviceName": name, "replicas": replicas, "selector": {"matchLabels": selector}, "podManagementPolicy": "Parallel",
            "template": {"metadata": {"labels": selector}, "spec": {**pod_spec(), **({"nodeName": node} if node else {})}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim_spec(size, **claim)}]}})

    def wait_for_pod(self, name, seconds=60):
        return self.kubectl.wait_for_pod(name, *self.here, seconds=seconds)

    def run_in(self, pod, *argv, seconds=60):
        return self.kubectl.run_in(pod, *argv, namespace=self.namespace, seconds=seconds)

    def shell(self, pod, script, seconds=60):
        return self.run_in(pod, "sh", "-c", script, seconds=seconds)

    def delete(self, kind, name, *arguments):
        self.kubectl("delete", kind, name, *self.here, *arguments, seconds=120)

    def events(self, name):
        """What an SRE reads of it: reason and message, the latest last."""
        listed = self.kubectl.items("events", *self.here, f"--field-selector=involvedObject.name={name}")
        return [f"{event['reason']}: {event['message']}" for event in listed]


def claim_spec(size, storage_class="lunkeeper", mode="ReadWriteOnce", **spec):
    return {"storageClassName": storage_class, "accessModes": [mode], "resources": {"requests": {"storage": size}}, **spec}


def pod_spec():
    return {"terminationGracePeriodSeconds": 1, "containers": [{
        "name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}
