"""The long runs of `./dev test long`: tests that other parts run for a short time, at their full length."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from harness.places import BUILD, LUNKEEPER, ROOT

E2E = ROOT / "e2e"


@dataclasses.dataclass(frozen=True)
class Run:
    """`length` is the value of the environment variable `variable`; without one the test has it itself."""

    name: str
    length: int
    command: tuple[str, ...]  # a file of e2e and pytest's options, or a Catch2 program and a test
    variable: str = ""
    short: int = 1

    def is_python(self) -> bool:
        return self.command[0].endswith(".py")

    def argv(self, *, only_list: bool = False) -> list[str]:
        first, *rest = self.command
        if not self.is_python():
            return [str(BUILD / first), *rest, "--list-test-names-only" if only_list else "--warn=NoTests"]
        how = ["--collect-only", "-q"] if only_list else ["-s", "-v", "--timeout=14400"]
        return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *how, first, *rest]

    def environment(self, full: bool) -> dict[str, str]:
        length = {self.variable: str(self.length if full else self.short)} if self.variable else {}
        return {**os.environ, "LUNKEEPER": str(LUNKEEPER), **length}

    def list_tests(self) -> str:
        return subprocess.run(
            self.argv(only_list=True), cwd=E2E, env=self.environment(True), capture_output=True, text=True
        ).stdout


RUNS = [
    Run("fences", 1000, ("faults/test_fence.py",), "FENCE_ROUNDS", 4),
    Run("kills of an offline growth", 50, ("faults/test_growth.py", "-k", "killed"), "GROWTH_ROUNDS"),
    Run("kills of a mounted growth", 50, ("guest/test_life.py", "-k", "killed"), "GROWTH_ROUNDS"),
    Run(
        "kills of resize2fs",
        50,
        ("devices/filesystem/filesystem_test", "a growth that was killed*"),
        "GROWTH_KILLS",
    ),
    Run("kills of the supervisor", 20, ("faults/test_data_path.py", "-k", "supervisor and again_and_again")),
    Run("seconds of a held flush", 300, ("faults/test_held_flush.py",), "FLUSH_SECONDS", 35),
    Run(
        "seconds of a flood",
        300,
        ("plugin/coordinator_test", "a stranger and a hostile node*"),
        "FLOOD_SECONDS",
        3,
    ),
    Run("seconds of a flooded cluster", 300, ("kube/failover/test_floods.py",), "FLOOD_SECONDS", 60),
    Run("rolling updates of the data path", 10, ("kube/test_data_path.py",), "ROLLING_UPDATES"),
    Run("seconds of a frozen array", 60, ("agent/test_frozen_array.py",), "FROZEN_SECONDS", 10),
    Run("failures of gateways in turn", 100, ("ceph/test_gateway_kills.py",), "GATEWAY_ROUNDS"),
    Run("freezes of a gateway", 50, ("ceph/test_late_maps.py", "-k", "frozen"), "FREEZE_ROUNDS"),
    Run("groups of snapshots", 200, ("faults/test_group_snapshots.py",), "GROUP_ROUNDS", 2),
    Run(
        "rounds of changed blocks",
        150,
        ("devices/array/tgt/pool_blocks_random_test",),
        "BLOCK_ROUNDS",
        5,
    ),
    Run("stalls of the API server", 10, ("kube/test_faults.py", "-k", "stalls"), "API_STALLS"),
    Run("rotations of all certificates", 5, ("kube/test_local_array.py", "-k", "replaced"), "ROTATIONS"),
    Run("seeds of Mesos under kills", 50, ("mesos/test_kill_schedules.py",), "KILL_SCHEDULES"),
]
