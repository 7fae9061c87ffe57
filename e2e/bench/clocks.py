"""Clocks that step, of the controllers and node plugins; see harness/clock.c.

All hosts share this machine's clock, which is never set.
"""

from pathlib import Path

from cluster import deploy
from harness.clock import build_clock, clock_variables, set_clock

FOLDER = "/srv/clock"  # on each node's own disk


class Clocks:
    """While the context lasts, `step` sets the clock of the processes of one node."""

    def __init__(self, cluster):
        self.cluster = cluster
        library = cluster.folder / "clock.so"
        build_clock(library)
        for node, host in cluster.nodes.items():
            host.enter("mkdir", "-p", FOLDER, check=True)
            host.enter("cp", library, FOLDER, check=True)
            self.step(node, 0)

    def step(self, node, seconds):
        set_clock(Path(f"/proc/{self.cluster.nodes[node].pid()}/root{FOLDER}/offset"), seconds)

    def __enter__(self):
        preloaded = {
            "extraEnv": [
                {"name": name, "value": value}
                for name, value in clock_variables(f"{FOLDER}/clock.so", f"{FOLDER}/offset").items()
            ],
            "extraVolumes": [{"name": "clock", "hostPath": {"path": FOLDER}}],
            "extraVolumeMounts": [{"name": "clock", "mountPath": FOLDER, "readOnly": True}],
        }
        deploy.install(self.cluster, controller=preloaded, node=preloaded)
        return self

    def __exit__(self, *unused):
        for node in self.cluster.nodes:
            self.step(node, 0)
        deploy.install(self.cluster)
