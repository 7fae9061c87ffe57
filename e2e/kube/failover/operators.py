"""Stand-ins for operators that own pods directly. Each makes its pod again, with the same claim, when the
pod's object is gone. That is all that docs/failover.md asks of an operator.
"""

import contextlib
import dataclasses
import subprocess
import threading

from harness.cleanup import Closing
from kube.failover.watching import Placed
from kube.workloads import pod_object
from kube.writer import SmallWriter

LOOK_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    group: str
    version: str

    @property
    def plural(self):
        return f"{self.name.lower()}s"

    @property
    def full(self):
        """As `ownerKinds` has it."""
        return f"{self.name}.{self.group}"

    def definition(self):
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": self.version, "served": True, "storage": True}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"kind": self.name, "plural": self.plural, "singular": self.name.lower()},
                "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
            },
        }


CLOUDNATIVE_PG = Kind("Cluster", "postgresql.cnpg.io", "v1")
STRIMZI = Kind("StrimziPodSet", "core.strimzi.io", "v1beta2")
KUBEVIRT = Kind("VirtualMachineInstance", "kubevirt.io", "v1")
ANOTHER = Kind("Cluster", "operators.example.com", "v1")  # none that anybody has listed


@contextlib.contextmanager
def defined(kubectl, kinds):
    """The API server knows these kinds while the context lasts."""
    definitions = [kind.definition() for kind in kinds]
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    try:
        kubectl.apply(*definitions)
        kubectl("wait", "--for=condition=Established", "--timeout=60s", *names, seconds=70)
        yield
    finally:
        kubectl("delete", "--ignore-not-found", *names, seconds=120)


class Operators(Closing):
    """All operators of one namespace."""

    def __init__(self, workloads):
        self.workloads, self._pods = workloads, {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def write(self, kind, name):
        """A writer with a volume of its own, in a pod that an object of this kind owns."""
        self.workloads.claim(name, size="64Mi", volumeMode="Block")

        def own(*what, **spec):
            self._pods[name] = owned(pod_object(*what, **spec), self._owner(kind, name))

        return SmallWriter(self.workloads, name, name, block=True, owner=own)

    def _owner(self, kind, name):
        version = f"{kind.group}/{kind.version}"
        self.workloads.apply({"apiVersion": version, "kind": kind.name, "metadata": {"name": name}})
        made = self.workloads.kubectl.get(f"{kind.plural}.{kind.group}", name, *self.workloads.here)
        return {
            "apiVersion": version,
            "kind": kind.name,
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    def close(self):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.wait(LOOK_SECONDS):
            with contextlib.suppress(RuntimeError, subprocess.SubprocessError):  # it looks again
                self._make_missing()

    def _make_missing(self):
        """Also one that is being deleted is there."""
        pods = {pod["metadata"]["name"] for pod in self.workloads.kubectl.items("pods", *self.workloads.here)}
        for name, pod in list(self._pods.items()):
            if name not in pods:
                self.workloads.kubectl("create", "-f", "-", *self.workloads.here, given=pod)


def owned(pod, owner):
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def place(failover, operators, kinds, node):
    """{kind: its operator's writer}, each of which runs on this node first."""
    with operators.workloads.new_pods_go_to(node):
        writers = {kind: operators.write(kind, f"db-{number}") for number, kind in enumerate(kinds)}
        for writer in writers.values():
            writer.goes_on(seconds=90)
    return {kind: Placed(failover, operators.workloads, writer) for kind, writer in writers.items()}
