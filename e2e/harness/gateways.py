"""Two gateways of one array on Ceph, of a rig."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.places import LUNKEEPER
from harness.processes import kill_pid, listener_of
from harness.rig import CLUSTER, LIST_PORTALS, TGT_SOCKETS, Rig, Server, free_control_port
from harness.volume import MIB, Volume


def volume_in_use(rig: Rig) -> tuple[Volume, BlockChecker]:
    """On the first node, under a writer that checks every byte."""
    volume = Volume(rig, rig.nodes[0], "v", block=True, size=16 * MIB).up(with_controller=True)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(300)
    return volume, checker


def end_whole(volume: Volume, checker: BlockChecker) -> None:
    """What volume_in_use began: it is written to still, saw no error, and has every byte; then it goes."""
    checker.wait_for_writes(300, seconds=120)
    checker.stop_good()
    checker.verify()
    volume.down(with_controller=True).delete()


class Gateway(Server):
    """A second gateway of a rig's array."""

    def __init__(self, rig: Rig, options: list[str], portal: str) -> None:
        self.portal = portal
        self.control_port = free_control_port()
        self.tgt_socket = TGT_SOCKETS / f"socket.{self.control_port}"
        pool = rig.folder / "second-pool"
        pool.mkdir()
        super().__init__(
            rig,
            "second",
            "controller",
            [
                f"--cluster={CLUSTER}",
                f"--array-name={rig.array_name}",
                f"--pool={pool}",
                f"--portal={portal}",
                f"--tgt-control-port={self.control_port}",
                f"--state-dir={rig.folder}/second-state",
                *options,
            ],
        )

    def stands_by(self) -> bool:
        """Whether it has seen that the other one lives. It must not have ended over it."""
        assert self.running(), self.tail()
        said = self.log.read_text()
        return "this agent stands by" in said and "another agent serves it, on host" in said

    def serves(self) -> bool:
        return serves(self)


def status_of(server: Server) -> str:
    """What `lunkeeper status` says there."""
    argv = [str(LUNKEEPER), "status", f"--endpoint=unix://{server.socket}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return str(done.stdout)


def path_of(server: Server, volume: str) -> tuple[str, int]:
    """By which portal a node's I/O to the volume goes, and how often it has moved."""
    row = re.search(rf"^ *{volume} .* ([0-9.]+:\d+) +\S+Z +(\d+)", status_of(server), re.MULTILINE)
    assert row, status_of(server)
    return row[1], int(row[2])


def serves(gateway: Server) -> bool:
    """Whether it does; one that has ended is started again, as by systemd."""
    if not gateway.running():
        gateway.start()
    return gateway.ready()


def stands_by(server: Server) -> bool:
    """Whether it does now; one that has ended is started again, as by systemd."""
    if not server.running():
        server.start()
    said = server.log.read_text()
    others = ("tgtd serves", "looking whether another")
    return said.rfind("this agent stands by") > max(map(said.rfind, others))


class Machine:
    """A gateway's agent and tgtd, which fail together."""

    def __init__(self, agent: Server, tgt_socket: Path) -> None:
        self.agent, self.tgt_socket = agent, tgt_socket

    def tgtd(self) -> int | None:
        return listener_of(self.tgt_socket, question=LIST_PORTALS)

    def die(self) -> None:
        """What runs of it."""
        tgtd = self.tgtd()
        self.agent.kill()
        if tgtd is not None:
            kill_pid(tgtd)

    def freeze(self) -> list[int]:
        """Stops both where they are; answers them, to be thawed."""
        tgtd = self.tgtd()
        assert tgtd
        pids = [self.agent.pid, tgtd]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    @staticmethod
    def thaw(pids: list[int]) -> None:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)

    def is_gone(self) -> bool:
        return not self.agent.running() and self.tgtd() is None


def await_both(first: Machine, second: Machine) -> tuple[Machine, Machine]:
    """Until one serves and the other stands by, whichever; in this order."""
    found: list[tuple[Machine, Machine]] = []

    def settled() -> bool:
        for one, other in ((first, second), (second, first)):
            if serves(one.agent) and stands_by(other.agent):
                found.append((one, other))
                return True
        return False

    wait_until(settled, 120, lambda: f"one serves\n{first.agent.tail()}\n{second.agent.tail()}")
    return found[-1]


def freeze_at(point: str, serving: Machine, other: Machine) -> None:
    """Starts the agent anew. It freezes when it comes to this fail point the next time."""
    folder = Path(tempfile.mkdtemp(dir=serving.agent.log.parent))
    hook, fired = folder / "freeze", folder / "fired"
    hook.write_text("#!/bin/sh\nkill -STOP $PPID\n")
    hook.chmod(0o755)
    fired.touch()  # not at the start
    serving.agent.kill()
    serving.agent.start(
        LUNKEEPER_FAIL_POINT=f"{point}:exec={hook}", LUNKEEPER_FAIL_POINT_ONCE=str(fired)
    )
    wait_until(serving.agent.ready, 60, serving.agent.tail)
    wait_until(lambda: stands_by(other.agent), 60, "the other one stands by")
    fired.unlink()


def machines(rig: Rig, second: Gateway) -> tuple[Machine, Machine]:
    """The first serves, the second one stands by."""
    second.start()
    wait_until(second.stands_by, 60, "the second one stands by")
    return Machine(rig.controller, rig.tgt_socket(0)), Machine(second, second.tgt_socket)
