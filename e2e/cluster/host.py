"""One host of the cluster: namespaces with init.py as their process 1, and whatever that starts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster import cgroups, loops, network
from cluster.machine_end import kill_host
from harness.cleanup import wait_until
from harness.places import ROOT
from harness.processes import MARK, alive, children_of, descendants, end_in_order

INIT = ROOT / "e2e/cluster/init.py"
# A real machine waits 90 s for its processes. The data path serves on while a volume is staged, so that
# would pass each time, with the node still well in part.
END_SECONDS = 1


class Host:
    """`folder` outlives the host's processes, as a disk does.

    Its pid file makes the host known to other processes.
    """

    def __init__(self, cluster: str, mark: str, name: str, number: int, folder: Path) -> None:
        self.cluster, self.mark, self.name, self.number, self.folder = cluster, mark, name, number, folder
        self.address = network.address(number)
        self.namespace = network.namespace(cluster, name)

    def service(self, name: str, argv: Iterable[object], **more: object) -> dict[str, Any]:
        """A service of this host, as `start` takes it."""
        return {
            "name": name,
            "argv": [str(part) for part in argv],
            "log": str(self.folder / f"{name}.log"),
            **more,
        }

    def start(self, spec: dict[str, Any]) -> None:
        cgroups.remove(self.namespace)
        network.plug(self.cluster, self.name, True)
        self.folder.mkdir(parents=True, exist_ok=True)
        described = self.folder / "host.json"
        described.write_text(json.dumps({"hostname": self.name, "cgroup": self.namespace, **spec}, indent=1))
        with open(self.folder / "init.log", "ab") as log:
            process = subprocess.Popen(
                [
                    "nsenter",
                    f"--net=/run/netns/{self.namespace}",
                    "unshare",
                    "--mount",
                    "--uts",
                    "--ipc",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    sys.executable,
                    str(INIT),
                    str(described),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment(),
            )
        (self.folder / "pid").write_text(f"{process.pid}\n")
        # So that nobody takes a host that has just been started for one that is off.
        wait_until(
            lambda: self.pid() is not None or process.poll() is not None, 20, f"{self.name} is on"
        )

    def _environment(self) -> dict[str, str]:
        # Only PATH comes from the caller, so that the cluster does not depend on its environment.
        return {"PATH": os.environ["PATH"], "HOME": "/root", MARK: self.mark}

    def pid(self) -> int | None:
        """Process 1's pid as this machine sees it; None while the host is off."""
        try:
            outer = int((self.folder / "pid").read_text())
            marked = f"{MARK}={self.mark}".encode() in open(f"/proc/{outer}/environ", "rb").read().split(
                b"\0"
            )
        except (OSError, ValueError):
            return None
        children = children_of(outer) if marked and alive(outer) else []
        return children[0] if children else None

    def services(self) -> dict[str, int]:
        """{name: pid as this machine sees it} of what runs of the host's services."""
        first = self.pid()
        if first is None:
            return {}
        wanted = {
            json.dumps(service["argv"]): service["name"]
            for service in json.loads((self.folder / "host.json").read_text())["services"]
        }
        found = {}
        for child in children_of(first):
            try:
                argv = open(f"/proc/{child}/cmdline", "rb").read().decode(errors="replace").split("\0")[:-1]
            except OSError:
                continue
            if name := wanted.get(json.dumps(argv)):
                found[name] = child
        return found

    def enter(self, *argv: object, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a command inside the host."""
        return subprocess.run(self.entering(*argv), **options)

    def entering(self, *argv: object) -> list[str]:
        first = self.pid()
        if first is None:
            raise RuntimeError(f"{self.name} is off")
        return [
            "nsenter",
            f"--target={first}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            *map(str, argv),
        ]

    def shut_down(self) -> None:
        """Ends in order, as `reboot` does: the services, all other processes, and the kernel at last.

        Peers learn of the end of each connection. Nothing is drained.
        """
        first = self.pid()
        if first is not None:
            os.kill(first, signal.SIGSTOP)  # or it would start the services again
            end_in_order(list(self.services().values()), END_SECONDS)
            end_in_order([pid for pid in descendants(first) if pid != first], END_SECONDS)
        self.power_off()

    def power_off(self) -> None:
        """Ends all processes at once. The network is cut first, so that no peer learns of it."""
        network.plug(self.cluster, self.name, False)
        first = self.pid()
        if first is not None:
            held = loops.published_at(first)
            kill_host(first)
            loops.release(held)
        wait_until(lambda: self.pid() is None, 20, f"{self.name} is off")
        network.forget_pods(self.cluster, self.name)
