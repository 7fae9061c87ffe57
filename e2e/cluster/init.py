"""Process 1 of a host of the test cluster: prepares its mounts, keeps its services running, and reaps.

    init.py SPEC.json

SPEC is an object with
  hostname
  cgroup     the name of the host's control groups
  tmpfs      mount points that start empty
  binds      {mount point: folder}
  shared     mount points whose mounts propagate into containers and back
  prepare    commands, each run once, in order
  services   each with name, argv, log and, optionally, wait: a command that must succeed before the next one

A service that ends is restarted after a second, as systemd would do. When this process dies the kernel ends
everything in the host: a power failure.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster import cgroups  # noqa: E402
from harness import mounts  # noqa: E402

PAUSE_SECONDS = 1
WAIT_SECONDS = 60


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=WAIT_SECONDS)


def prepare_mounts(spec: dict[str, Any]) -> None:
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    subprocess.run(["sh", "-c", mounts.drop_others()], check=False, timeout=WAIT_SECONDS)
    for point in spec.get("tmpfs", []):
        pathlib.Path(point).mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", point)
    for point, folder in spec.get("binds", {}).items():
        for path in (point, folder):
            pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", folder, point)
    for point in spec.get("shared", []):
        run("mount", "--make-shared", point)


class Service:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.ended_at = spec, 0.0
        self.process: subprocess.Popen[bytes]  # once started

    def start(self) -> None:
        with open(self.spec["log"], "ab") as log:
            self.process = subprocess.Popen(
                self.spec["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.spec.get("environment", {})},
            )

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (
            subprocess.run(
                self.spec["wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=WAIT_SECONDS
            ).returncode
            != 0
        ):
            if time.monotonic() > deadline:
                sys.exit(f"{self.spec['name']} does not serve after {WAIT_SECONDS} s: see {self.spec['log']}")
            time.sleep(0.1)

    def keep_running(self, now: float) -> None:
        if self.process.poll() is None:
            return
        if not self.ended_at:
            self.ended_at = now
            print(f"{self.spec['name']} ended with {self.process.returncode}", flush=True)
        elif now - self.ended_at >= PAUSE_SECONDS:
            self.ended_at = 0.0
            self.start()


def reap(services: list[Service]) -> None:
    """Orphans of containers and shims. Services are left to their own poll()."""
    ours = {service.process.pid for service in services}
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return  # a service's end is seen by keep_running, which then takes it out of the way
        os.waitpid(ended.si_pid, 0)


def main() -> None:
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(0))
    run("hostname", spec["hostname"])
    prepare_mounts(spec)
    if "cgroup" in spec:
        cgroups.move_into(spec["cgroup"])
    for command in spec.get("prepare", []):
        run(*command)
    services = [Service(service) for service in spec["services"]]
    for service in services:
        service.start()
        if "wait" in service.spec:
            service.wait_until_it_serves()
    while True:
        now = time.monotonic()
        for service in services:
            service.keep_running(now)
        reap(services)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
