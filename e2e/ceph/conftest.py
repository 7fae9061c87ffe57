"""One small Ceph for a file of tests, and an array on it with two gateways."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph
from harness.gateways import Gateway, Machine
from harness.processes import free_port
from harness.rig import Rig
from harness.store import options_of


@pytest.fixture(scope="module")
def ceph(folder: Path) -> Iterator[Ceph]:
    with Ceph(folder / "ceph") as ceph:
        yield ceph


@pytest.fixture
def rig(folder: Path, plain_pool: Path, ceph: Ceph) -> Iterator[Rig]:
    place = Path(tempfile.mkdtemp(dir=folder))
    with Rig(place, plain_pool, nodes=2, split=True, array_options=options_of(ceph), start=False) as rig:
        yield rig


@pytest.fixture
def second(rig: Rig, ceph: Ceph, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """`request.param`: how nodes find it."""
    moves = request.param == "the portal moves"
    gateway = Gateway(rig, options_of(ceph), rig.portal if moves else f"127.0.0.1:{free_port()}")
    if request.param == "both portals are in the grants":
        rig.controller.argv.append(f"--peer-portal={gateway.portal}")
        gateway.argv.append(f"--peer-portal={rig.portal}")
    rig.start()
    yield gateway
    Machine(gateway, gateway.tgt_socket).die()
    for suffix in ("", ".lock"):
        Path(f"{gateway.tgt_socket}{suffix}").unlink(missing_ok=True)
