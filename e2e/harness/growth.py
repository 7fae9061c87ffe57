"""Growth of an ext4 by a stage that is killed with its tools, as when the node server's container ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import threading
import time

import grpc

from harness.faults import repeat
from harness.processes import children_of, command_of, kill_pid
from harness.rig import Rig
from harness.volume import MIB, Volume

SMALL, LARGE = 64 * MIB, 32 << 30  # sparse, and large enough to take seconds
FILES, FILE_BYTES = 30, 300_000
TOOLS = ("e2fsck", "resize2fs")
MORE_ROUNDS = 10


def content(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (FILE_BYTES // 32)


def kill_node(rig: Rig) -> list[str]:
    """SIGKILL for the server and the tools it runs, a container's processes; the tools' names."""
    server = rig.nodes[0].server
    assert server is not None
    os.kill(server.pid, signal.SIGSTOP)  # starts no more tools
    children = {pid: command_of(pid) for pid in children_of(server.pid)}
    tools = {pid: words[0] for pid, words in children.items() if words and words[0] in TOOLS}
    for pid in tools:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.kill()
    for pid in tools:
        kill_pid(pid)
    return list(tools.values())


def small_volume(rig: Rig, name: str) -> Volume:
    """With files, not staged, and its LUN grown."""
    volume = Volume(rig, rig.nodes[0], name, fs="ext4", size=SMALL).up()
    for number in range(FILES):
        volume.write_file(str(number), content(number))
    return volume.down().controller_expand(LARGE)


def check_grown(rig: Rig, volume: Volume) -> None:
    """Staged, and as large as its device, with every file; and e2fsck finds nothing."""
    volume.publish()
    found = os.statvfs(volume.target)
    assert found.f_blocks * found.f_frsize > LARGE * 0.9, "it has not grown"
    for number in range(FILES):
        assert (volume.target / str(number)).read_bytes() == content(number), f"file {number} is not whole"
    volume.down()
    check_medium(rig, volume)


def check_medium(rig: Rig, volume: Volume) -> None:
    """The file system on the array's file, as e2fsck sees it."""
    done = subprocess.run(
        ["e2fsck", "-f", "-n", str(rig.medium_of(volume))],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"e2fsck: {done.returncode}\n{done.stdout}{done.stderr}"


def measure_stage(rig: Rig) -> float:
    """The seconds that a stage takes which grows and is not killed."""
    volume = small_volume(rig, "measured")
    started = time.monotonic()
    repeat(volume.stage)
    seconds = time.monotonic() - started
    check_grown(rig, volume)
    volume.delete()
    return seconds


def kill_while_they_grow(rig: Rig, rounds: int, longest: float) -> list[list[str]]:
    """So many rounds, and more until a tool was killed at work; what `kill_while_it_grows` says of each."""
    killed: list[list[str]] = []
    while len(killed) < rounds or not any(killed):
        assert len(killed) < rounds + MORE_ROUNDS, f"no tool was at work in {len(killed)} rounds"
        killed.append(kill_while_it_grows(rig, f"killed-{len(killed)}", longest))
    return killed


def kill_while_it_grows(rig: Rig, name: str, longest: float) -> list[str]:
    """One round; the names of the tools that were at work when they were killed."""
    volume = small_volume(rig, name)

    def stage() -> None:
        with contextlib.suppress(grpc.RpcError):
            volume.stage()

    staging = threading.Thread(target=stage)
    staging.start()
    time.sleep(random.uniform(0, longest))
    killed = kill_node(rig)
    staging.join()
    rig.start()
    repeat(volume.stage)
    check_grown(rig, volume)
    volume.delete()
    return killed
