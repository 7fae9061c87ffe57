"""kubectl, and what tests ask of it."""

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

from cluster import programs
from cluster.host import Host
from harness.cleanup import wait_until

Object = dict[str, Any]  # of Kubernetes, as its JSON has it
Given = Object | list[Object] | None

# Of a kubelet that has just been started and has not read its pods yet. It ran nothing.
KUBELET_IS_NEW = "unable to upgrade connection: pod does not exist"


class Kubectl:
    """`host`: the host in whose network it runs, with the administrator's kubeconfig."""

    def __init__(self, host: Host, kubeconfig: Path) -> None:
        self.command = [
            "nsenter",
            f"--net=/run/netns/{host.namespace}",
            str(programs.path("kubectl")),
            f"--kubeconfig={kubeconfig}",
        ]

    def __call__(self, *arguments: object, given: Given = None, seconds: float = 60) -> str:
        """Its output; fails with what it said. `given`: an object or a list of them, as -f -."""
        return self._checked(arguments, self.attempt(*arguments, given=given, seconds=seconds))

    @staticmethod
    def _checked(arguments: tuple[object, ...], done: subprocess.CompletedProcess[str]) -> str:
        if done.returncode != 0:
            raise RuntimeError(
                f"kubectl {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr.strip()}"
            )
        return done.stdout

    def attempt(
        self, *arguments: object, given: Given = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        document = None
        if given is not None:
            items = given if isinstance(given, list) else [given]
            document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        return subprocess.run(
            [*self.command, *map(str, arguments)],
            input=document,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def get(self, *arguments: object) -> Object:
        found: Object = json.loads(self("get", *arguments, "-o", "json"))
        return found

    def items(self, *arguments: object) -> list[Object]:
        found: list[Object] = self.get(*arguments)["items"]
        return found

    def find(self, kind: str, name: str, *arguments: object) -> Object | None:
        """The object, or None."""
        shown = self("get", kind, name, "--ignore-not-found", "-o", "json", *arguments)
        return json.loads(shown) if shown.strip() else None

    def apply(self, *objects: Object) -> None:
        self("apply", "-f", "-", given=list(objects))

    def wait_for_pod(self, name: str, *arguments: object, seconds: float = 60) -> Object:
        """Until the pod is ready; the pod. Says what its events were if it is not."""

        def ready() -> Object | None:
            pod = self.find("pod", name, *arguments)
            return (
                pod
                if pod and condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]
                else None
            )

        return wait_until(
            ready, seconds, lambda: f"pod {name} is ready\n{self.why(name, *arguments)}", pause=0.1
        )

    def why(self, name: str, *arguments: object) -> str:
        """What kubectl tells of a pod, for people."""
        return self.attempt("describe", "pod", name, *arguments).stdout[-4000:]

    def run_in(self, pod: str, *argv: object, namespace: str = "default", seconds: float = 60) -> str:
        """The output of a command in a pod. A kubelet that has just been started is waited for."""
        command = ("exec", f"--namespace={namespace}", pod, "--", *argv)

        def run() -> subprocess.CompletedProcess[str] | None:
            done = self.attempt(*command, seconds=seconds)
            return None if done.returncode != 0 and KUBELET_IS_NEW in done.stderr else done

        done = wait_until(run, 30, lambda: f"the kubelet knows pod {pod}", pause=0.2)
        return self._checked(command, done)


def seconds_of(said: str) -> float:
    """A time as objects and logs have it, as time.time() would have said."""
    return datetime.datetime.fromisoformat(said).timestamp()


def condition(thing: Object, kind: str) -> bool:
    """Whether a node or a pod has this condition."""
    return any(
        c["type"] == kind and c["status"] == "True" for c in thing.get("status", {}).get("conditions", [])
    )
