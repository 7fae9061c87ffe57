"""An array on three OSDs, of which the one that has its images learns of new maps late.

There a gateway that was shut out can write until that OSD has the map that says so. A takeover with one step
left out loses data by it: negative controls of what a gateway does. And real gateways, which leave none out,
are frozen and let go again and again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import rados
import rbd

from harness import rbd_writer
from harness.ceph import Ceph
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.gateways import Gateway, Machine, machines, serves, stands_by
from harness.processes import Daemon
from harness.rig import Rig
from harness.volume import MIB, Volume

LATE = 2  # the OSD that has everything of the pool
MAP_SECONDS = 2  # how late a map may be that a monitor sends to that one
# No OSD is taken for dead because its heartbeats are rare; and one that gets a placement group waits for a
# share of the grace.
PATIENT = ("--osd-heartbeat-grace=300", "--osd-pool-default-read-lease-ratio=0.01")
SIZE = 4 << 20
BLOCKS = range(0, SIZE, rbd_writer.STEP)
# The monitors send a new map to one OSD that they draw. If that is this one, it may have it in time.
TRIES = 6
NUMBERS = itertools.count()

ROUNDS = int(os.environ.get("FREEZE_ROUNDS", "2"))
FROZEN_SECONDS = 60 if "FREEZE_ROUNDS" in os.environ else 5
# Of an image, so that what a node has sent is in the gateway's hands when that freezes.
WRITES_PER_SECOND = 100
# Few, so that each is soon overwritten by the next gateway.
BLOCKS_WRITTEN = 64


@dataclasses.dataclass(frozen=True)
class Takeover:
    """As a gateway does it: its agent blocks the old one and waits for the map, then a new client writes."""

    waits: Literal["agent", "writer", "nobody"] = "agent"
    image_opened: Literal["by a new client", "late", "before"] = "by a new client"  # than the blocking
    entry_seconds: int = 24 * 3600
    exclusive_lock: bool = False


@pytest.fixture(scope="module")
def ceph(folder: Path) -> Iterator[Ceph]:
    options = {number: list(PATIENT) for number in range(3)}
    delay = {"type": "mon", "probability": 1, "max": MAP_SECONDS}
    options[LATE] += [f"--ms-inject-delay-{name}={value}" for name, value in delay.items()]
    with Ceph(folder / "ceph", osds=3, osd_options=options) as ceph:
        ceph.ceph("osd", "crush", "rm-device-class", LATE)
        ceph.ceph("osd", "crush", "set-device-class", "late", LATE)
        ceph.ceph("osd", "crush", "rule", "create-replicated", "late", "default", "osd", "late")
        ceph.ceph("osd", "pool", "set", ceph.POOL, "crush_rule", "late")
        wait_until(lambda: has_moved(ceph), 60, f"all is on OSD {LATE}", pause=0.3)
        # With them OSDs pass on their maps.
        ceph.ceph("config", "set", "osd", "osd_heartbeat_interval", 60)
        yield ceph


def has_moved(ceph: Ceph) -> bool:
    groups = ceph.ask("pg", "ls-by-pool", ceph.POOL)["pg_stats"]
    return all(group["acting"] == [LATE] and group["state"] == "active+clean" for group in groups)


@contextlib.contextmanager
def client(ceph: Ceph) -> Iterator[rados.Rados]:
    cluster = rbd_writer.connect(str(ceph.conf))
    yield cluster
    cluster.shutdown()


def ask(monitors: rados.Rados, **command: object) -> bytes:
    code, out, error = monitors.mon_command(json.dumps(command), b"")
    assert code == 0, error
    return bytes(out)


def shut_out(monitors: rados.Rados, address: str, seconds: int) -> None:
    ask(monitors, prefix="osd blocklist", blocklistop="add", addr=address, expire=float(seconds))


def is_shut_out(monitors: rados.Rados, address: str) -> bool:
    nonce = address.rpartition("/")[2]
    return f"/{nonce} " in ask(monitors, prefix="osd blocklist ls").decode()


@contextlib.contextmanager
def frozen_writer(ceph: Ceph, image: str) -> Iterator[tuple[Daemon, str]]:
    """In the middle of its writes; and its address."""
    argv = [sys.executable, rbd_writer.__file__, ceph.conf, ceph.POOL, image]
    writer = Daemon(image, argv, log=ceph.folder / f"{image}.out", dies_with_us=True).start()
    try:
        wait_until(lambda: "wrote" in writer.log.read_text(), 60, writer.tail)
        os.kill(writer.pid, signal.SIGSTOP)
        yield writer, writer.log.read_text().split("\n")[0]
    finally:
        writer.kill()


def let_go(writer: Daemon) -> None:
    """Until it has written everything again, or cannot."""
    before = writer.log.read_text().count("wrote")
    os.kill(writer.pid, signal.SIGCONT)
    wait_until(
        lambda: not writer.running() or writer.log.read_text().count("wrote") > before + 1, 60, writer.tail
    )


def count_lost(ceph: Ceph, image: str) -> int:
    """How many blocks are not as the next gateway wrote them."""
    with (
        client(ceph) as cluster,
        cluster.open_ioctx(ceph.POOL) as pool,
        rbd.Image(pool, image, read_only=True) as opened,
    ):
        return sum(opened.read(offset, 1) != b"n" for offset in BLOCKS)


def lost_after(ceph: Ceph, steps: Takeover) -> int:
    """How much, when the old gateway has been let go."""
    name = f"image-{next(NUMBERS)}"
    with contextlib.ExitStack() as ends:

        def open_by(cluster: rados.Rados) -> rbd.Image:
            pool = ends.enter_context(cluster.open_ioctx(ceph.POOL))
            return ends.enter_context(rbd.Image(pool, name))

        agent, gateway = (ends.enter_context(client(ceph)) for _ in range(2))
        features = rbd.RBD_FEATURE_EXCLUSIVE_LOCK if steps.exclusive_lock else rbd.RBD_FEATURE_LAYERING
        with agent.open_ioctx(ceph.POOL) as pool:
            rbd.RBD().create(pool, name, SIZE, order=16, features=features)
        old, address = ends.enter_context(frozen_writer(ceph, name))
        image = open_by(gateway) if steps.image_opened == "before" else None
        shut_out(agent, address, steps.entry_seconds)
        if steps.waits != "nobody":
            (agent if steps.waits == "agent" else gateway).wait_for_latest_osdmap()
        if steps.image_opened == "by a new client":
            gateway = ends.enter_context(client(ceph))
        rbd_writer.write(image or open_by(gateway), b"n")
        if steps.entry_seconds < 60:
            wait_until(lambda: not is_shut_out(agent, address), 60, "the entry has expired", pause=0.2)
            assert count_lost(ceph, name) == 0  # asked by a client with the map of that: the OSD has it now
        let_go(old)
        lost = count_lost(ceph, name)
    print(f"{steps}: {lost} of {len(BLOCKS)} blocks lost; {old.tail(2)}")
    return lost


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(Takeover(waits="nobody", image_opened="late"), id="no wait for the map"),
        pytest.param(Takeover(image_opened="before"), id="an image opened before"),
        pytest.param(Takeover(entry_seconds=4), id="an entry of 4 seconds"),
    ],
)
def test_a_takeover_that_lacks_a_step_loses_data(ceph: Ceph, steps: Takeover) -> None:
    assert any(lost_after(ceph, steps) for _ in range(TRIES))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(Takeover(), id="as a gateway does it"),
        pytest.param(Takeover(waits="writer", image_opened="late"), id="the client that writes has waited"),
    ],
)
def test_a_takeover_with_every_step_loses_none(ceph: Ceph, steps: Takeover) -> None:
    """Though no image's exclusive lock helps."""
    assert not any(lost_after(ceph, steps) for _ in range(TRIES // 2))


def freeze_and_let_go(serving: Machine, other: Machine, checkers: list[BlockChecker]) -> None:
    began = time.monotonic()
    agent, tgtd = serving.freeze()
    wait_until(lambda: serves(other.agent), 120, lambda: f"the other one serves\n{other.agent.tail()}")
    took = time.monotonic() - began
    for checker in checkers:
        checker.wait_for_writes(5 * BLOCKS_WRITTEN, seconds=120)
    time.sleep(max(0, began + FROZEN_SECONDS - time.monotonic()))
    frozen = time.monotonic() - began
    os.kill(tgtd, signal.SIGCONT)
    time.sleep(1)  # for what it had in hand
    os.kill(agent, signal.SIGCONT)
    wait_until(serving.is_gone, 60, "the old gateway has ended, and its tgtd")
    print(f"taken over after {took:.1f} s, let go after {frozen:.1f} s")


@pytest.mark.timeout(300 + 240 * ROUNDS)
@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_a_gateway_that_was_frozen_writes_nothing_again_and_again(
    rig: Rig, second: Gateway, ceph: Ceph
) -> None:
    ceph.rbd("config", "pool", "set", ceph.POOL, "rbd_qos_write_iops_limit", WRITES_PER_SECOND)
    volumes = [
        Volume(rig, node, f"on-{node.name}", block=True, size=16 * MIB).up(with_controller=True)
        for node in rig.nodes
    ]
    checkers = [BlockChecker(volume, blocks=BLOCKS_WRITTEN, pause_ms=0).start() for volume in volumes]
    serving, other = machines(rig, second)
    for _ in range(ROUNDS):
        for checker in checkers:
            checker.wait_for_writes(BLOCKS_WRITTEN, seconds=120)
        wait_until(lambda other=other: stands_by(other.agent), 60, "the other one stands by")
        freeze_and_let_go(serving, other, checkers)
        serving, other = other, serving
        rig.controller = serving.agent
        for checker in checkers:
            checker.stop_good()
            checker.verify()
            checker.start()
    for volume, checker in zip(volumes, checkers):
        checker.stop_good()
        volume.down(with_controller=True).delete()
