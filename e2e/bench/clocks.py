"""Clocks that step, of the controllers and node plugins; see clock.c.

All hosts share this machine's clock, which is never set.
"""

import struct
from pathlib import Path

from cluster import deploy
from harness.pool import run

SOURCE = Path(__file__).with_name("clock.c")
FOLDER = "/srv/clock"  # on each node's own disk


class Clocks:
    """While the context lasts, `step` sets the clock of the processes of one node."""

    def __init__(self, cluster):
        self.cluster = cluster
        library = cluster.folder / "clock.so"
        run("cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE)
        for node, host in cluster.nodes.items():
            host.enter("mkdir", "-p", FOLDER, check=True)
            host.enter("cp", library, FOLDER, check=True)
            self.step(node, 0)

    def step(self, node, seconds):
        path = Path(f"/proc/{self.cluster.nodes[node].pid()}/root{FOLDER}/offset")
        with open(path, "r+b" if path.exists() else "wb") as file:  # in place: it is mapped
            file.write(struct.pack("q", int(seconds * 1e9)))

    def __enter__(self):
        preloaded = {
            "extraEnv": [
                {"name": "LD_PRELOAD", "value": f"{FOLDER}/clock.so"},
                {"name": "CLOCK_OFFSET", "value": f"{FOLDER}/offset"},
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
