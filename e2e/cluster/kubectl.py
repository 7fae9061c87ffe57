"""kubectl, and what tests ask of it."""

import datetime
import json
import subprocess

from cluster import programs
from harness.cleanup import wait_until


class Kubectl:
    """`host`: the host in whose network it runs, with the administrator's kubeconfig."""

    def __init__(self, host, kubeconfig):
        self.command = ["nsenter", f"--net=/run/netns/{host.namespace}", str(programs.path("kubectl")),
                        f"--kubeconfig={kubeconfig}"]

    def __call__(self, *arguments, given=None, seconds=60):
        """Its output; fails with what it said. `given`: an object or a list of them, as -f -."""
        done = self.attempt(*arguments, given=given, seconds=seconds)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr.strip()}")
        return done.stdout

    def attempt(self, *arguments, given=None, seconds=60):
        if given is not None:
            items = given if isinstance(given, list) else [given]
            given = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        return subprocess.run([*self.command, *map(str, arguments)], input=given, capture_output=True, text=True,
                              timeout=seconds)

    def get(self, *arguments):
        return json.loads(self("get", *arguments, "-o", "json"))

    def items(self, *arguments):
        return self.get(*arguments)["items"]

    def find(self, kind, name, *arguments):
        """The object, or None."""
        shown = self("get", kind, name, "--ignore-not-found", "-o", "json", *arguments)
        return json.loads(shown) if shown.strip() else None

    def apply(self, *objects):
        self("apply", "-f", "-", given=list(objects))

    def wait_for_pod(self, name, *arguments, seconds=60):
        """Until the pod is ready; the pod. Says what its events were if it is not."""
        def ready():
            pod = self.find("pod", name, *arguments)
            return pod if pod and condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"] else None
        return wait_until(ready, seconds, lambda: f"pod {name} is ready\n{self.why(name, *arguments)}", pause=0.1)

    def why(self, name, *arguments):
        """What kubectl tells of a pod, for people."""
        return self.attempt("describe", "pod", name, *arguments).stdout[-4000:]

    def run_in(self, pod, *argv, namespace="default", seconds=60):
        return self("exec", f"--namespace={namespace}", pod, "--", *argv, seconds=seconds)


def seconds_of(said):
    """A time as objects and logs have it, as time.time() would have said."""
    return datetime.datetime.fromisoformat(said).timestamp()


def condition(thing, kind):
    """Whether a node or a pod has this condition."""
    return any(c["type"] == kind and c["status"] == "True" for c in thing.get("status", {}).get("conditions", []))
